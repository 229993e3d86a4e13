"""Fixtures that the whole run shares, and how thoroughly Hypothesis searches.

Of Hypothesis' profiles `dev` is the default and `ci` what ``.ci/run`` asks for.
"""

from __future__ import annotations

import os

from hypothesis import settings
from tests.databases import postgres_server, tables
from tests.launchers import launcher
from tests.spark.sessions import cluster, spark
from tests.stores import object_server, store

__all__ = [
    "cluster",
    "launcher",
    "object_server",
    "postgres_server",
    "spark",
    "store",
    "tables",
]

settings.register_profile("dev", max_examples=100, deadline=None)
settings.register_profile(
    "ci", max_examples=200, deadline=None, derandomize=True, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
