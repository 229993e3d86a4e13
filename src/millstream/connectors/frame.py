"""A data frame in the driver's memory as a source."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING

from millstream.connectors.base import Source, SourceReader, Split

if TYPE_CHECKING:
    import polars as pl

    from millstream.config import Config

__all__ = ["DataFrameSource"]

_LOOKED_AT = 1024
"""Rows that are looked at to know the same input again."""

_TIMED_PARTS = 8
_TIMED_ROWS = 1024
"""Rows of a part at least, where rows are given time: few rows keep their order."""


class DataFrameSource(Source["pl.DataFrame"]):
    """Slices of a data frame; every task reads a contiguous part."""

    is_bounded = True

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame
        self.timed_parts = max(1, min(_TIMED_PARTS, frame.height // _TIMED_ROWS))

    def splits(self, task_count: int) -> list[Split]:
        """Cut the rows into `task_count` parts of nearly equal length."""
        height = self._frame.height
        bounds = [height * i // task_count for i in range(task_count + 1)]
        return [
            Split(f"rows[{start}:{end}]", (start, end))
            for start, end in pairwise(bounds)
            if end > start
        ]

    def identity(self) -> str:
        """Return how many rows there are, of which columns, and a hash of some."""
        frame = self._frame
        step = max(1, frame.height // _LOOKED_AT)
        try:
            hashes = frame.gather_every(step).hash_rows(0).to_list()
        except Exception:  # noqa: BLE001 - Polars cannot hash every type
            hashes = []
        digest = hashlib.sha256(repr(hashes).encode()).hexdigest()[:10]
        columns = ", ".join(f"{name}: {kind}" for name, kind in frame.schema.items())
        return f"{frame.height} rows of ({columns}) (#{digest})"

    def open(
        self,
        split: Split,
        offset: int,
        config: Config,  # noqa: ARG002 - the batch size comes with `read`
    ) -> SourceReader[pl.DataFrame]:
        """Return a reader of the part from the `offset`-th of its rows on."""
        start, end = split.payload
        return _FrameReader(self._frame[start:end], offset)


class _FrameReader(SourceReader["pl.DataFrame"]):
    def __init__(self, frame: pl.DataFrame, offset: int) -> None:
        self._frame = frame
        self._offset = offset

    def read(self, rows: int) -> pl.DataFrame | None:
        batch = self._frame[self._offset : self._offset + rows]
        self._offset += batch.height
        return batch if batch.height else None

    @property
    def offset(self) -> int:
        return self._offset
