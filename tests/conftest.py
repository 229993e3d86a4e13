"""Fixtures that the whole run shares, and what makes it quick.

No test may depend on the latter.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.sessions import cluster, spark
from tests.support.databases import postgres_server, tables
from tests.support.examples import load_profile
from tests.support.launchers import launcher
from tests.support.sharing import Sharing, name_file, remove_file, write_down
from tests.support.stored_names import files_with_paths, stored_files
from tests.support.stores import object_server, store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "cluster",
    "launcher",
    "object_server",
    "postgres_server",
    "spark",
    "store",
    "tables",
]

load_profile()

_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.ui.enabled=false"
"""A JVM that lives for seconds spends half of them on compiling what it never uses."""
os.environ.setdefault("JAVA_TOOL_OPTIONS", _QUICK_JAVA)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Begin with what starts JVMs, which take longest, and say who shares a server."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    if hasattr(config, "workerinput"):
        write_down(items)


def pytest_configure(config: pytest.Config) -> None:
    """Let processes say which test asks for which server."""
    if not hasattr(config, "workerinput"):
        name_file()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what they said."""
    if not hasattr(config, "workerinput"):
        remove_file()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing | None:
    """Let tests that share a server run in one process, where that is asked for."""
    return Sharing(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """Leave thousands of tests and modules out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Let no test leave a state directory that names a module of ours."""
    yield tmp_path
    content = {str(path): path.read_bytes() for path in stored_files(tmp_path)}
    assert files_with_paths(content) == []
