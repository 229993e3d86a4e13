"""Flows that are interrupted half-way behind a savepoint, and others that go on from it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import polars as pl

import millstream as ms
from millstream.connectors.base import Source, SourceReader, Split
from millstream.errors import JobCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Build = Callable[[ms.Flow, Source[Any]], Any]

__all__ = ["ROWS", "Numbers", "finished", "interrupted"]

ROWS = [(i % 3, i, i * 10) for i in range(60)]
_waiting = threading.Event()


class Numbers(Source[tuple[int, int, int]]):
    """Rows of which only some come; who has read those is told to wait."""

    is_parallel = False
    is_bounded = True

    def __init__(self, count: int) -> None:
        self._count = count

    def splits(self, task_count: int) -> list[Split]:
        return [Split("numbers")]

    def open(self, split: Split, offset: int, config: Any) -> SourceReader[Any]:
        return _Reader(self._count, offset)


class _Reader(SourceReader[Any]):
    offset = 0

    def __init__(self, count: int, offset: int) -> None:
        self._count = count
        self.offset = offset

    def read(self, rows: int) -> list[Any] | None:
        if self.offset >= len(ROWS):
            return None
        if self.offset >= self._count:
            _waiting.set()
            return []
        batch = ROWS[self.offset : min(self.offset + rows, self._count)]
        self.offset += len(batch)
        return batch


def interrupted(
    build: Build,
    tmp_path: Path,
    name: str = "first",
    count: int = len(ROWS) // 2,
    **options: Any,
) -> Path:
    """Return the savepoint of a flow that has read some of its rows."""
    _waiting.clear()
    flow = ms.Flow("fitting")
    build(flow, Numbers(count))
    options |= {"state": tmp_path / f"{name}-state", "snapshot_every": "1h"}
    job = flow.start(on="local", **options)
    assert _waiting.wait(30)
    savepoint = tmp_path / name
    job.savepoint(savepoint)
    job.cancel()
    with contextlib.suppress(JobCancelledError):
        job.wait()
    return savepoint


def finished(build: Build, **options: Any) -> tuple[Any, ms.Job]:
    """Return the result of a flow that reads all of its rows."""
    flow = ms.Flow("fitting")
    handle = build(flow, Numbers(len(ROWS)))
    job = flow.run(on="local", **options)
    result = handle.result()
    rows = result.rows(named=True) if isinstance(result, pl.DataFrame) else result
    return sorted(map(repr, rows)) if isinstance(rows, list) else rows, job
