"""The Spark session that belongs to jobs and not to the program.

It does not import pyspark; `launch.spark` makes the session.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OwnSession", "is_placed", "is_stopped"]


class OwnSession:
    """The session that the launcher made, if any, and how many jobs are on it.

    Jobs that run at the same time share it, and the last one to leave stops it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._session: SparkSession | None = None
        self._job_count = 0

    @property
    def session(self) -> SparkSession | None:
        """The session, unless it was stopped by somebody else."""
        if self._session is not None and is_stopped(self._session):
            self._session, self._job_count = None, 0
        return self._session

    def adopt(self, session: SparkSession) -> None:
        """Be responsible for a session."""
        self._session, self._job_count = session, 0

    def join(self, session: SparkSession) -> None:
        """Count a job that starts on a session, ours or not."""
        with self.lock:
            self._job_count += session is self.session

    def leave(self, session: SparkSession) -> None:
        """Count a job off that ran on a session, ours or not."""
        with self.lock:
            if session is not self.session:
                return
            self._job_count -= 1
            if not self._job_count:
                self._session = None
                session.stop()


def is_stopped(session: SparkSession) -> bool:
    """Whether a session, of either kind, can run nothing any more."""
    if hasattr(session, "is_stopped"):
        return bool(session.is_stopped)
    return getattr(session.sparkContext, "_jsc", None) is None


def is_placed() -> bool:
    """Whether spark-submit, or a remote server, says where Spark is."""
    return any(name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"))
