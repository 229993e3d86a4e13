"""A source that never ends, for jobs that somebody else ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.base import Source, SourceReader, Split

if TYPE_CHECKING:
    from millstream.config import Config

__all__ = ["Ticks"]


class _Ticking(SourceReader[int]):
    def __init__(self, first: int) -> None:
        self._next = first
        self._is_due = False

    def read(self, rows: int) -> list[int]:
        del rows
        self._is_due = not self._is_due
        if not self._is_due:
            return []
        self._next += 1
        return [self._next - 1]

    @property
    def offset(self) -> int:
        return self._next


class Ticks(Source[int]):
    """All numbers, one after the other, for ever."""

    is_parallel = False

    def splits(self, task_count: int) -> list[Split]:
        del task_count
        return [Split("ticks")]

    def open(self, split: Split, offset: int, config: Config) -> SourceReader[int]:
        del split, config
        return _Ticking(offset)

    def identity(self) -> str:
        return "ticks"
