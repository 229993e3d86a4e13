"""Fixtures for tests that kill: a Spark session and a cluster, shared by the whole run."""

from __future__ import annotations

from tests.spark.sessions import cluster, spark

__all__ = ["cluster", "spark"]
