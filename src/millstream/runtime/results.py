"""Rows that sinks send to the driver, by the epoch that they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgpack

from millstream.state.plain import decode_lists

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ResultPart", "Results", "packed_parts", "unpacked_parts"]


@dataclass(frozen=True, slots=True)
class ResultPart:
    """Rows of one task, encoded; they came after its cut of `epoch`."""

    sink: str
    task: int
    epoch: int
    payload: bytes


@dataclass(slots=True)
class Results:
    """All parts that have come, in order."""

    _parts: list[ResultPart] = field(default_factory=list)

    def add(self, part: ResultPart) -> None:
        """Keep a part; parts of one task arrive in order."""
        self._parts.append(part)

    def go_back(self, epoch: int) -> None:
        """Forget what came after the cut of an epoch."""
        self._parts = [part for part in self._parts if part.epoch < epoch]

    def between(self, since: int, epoch: int) -> list[ResultPart]:
        """Return what came after one cut and before another."""
        return [part for part in self._parts if since <= part.epoch < epoch]

    def rows(self, sink: str) -> list[Any]:
        """Return all rows of a sink, in the order of tasks."""
        own = sorted(
            (part for part in self._parts if part.sink == sink),
            key=lambda part: part.task,
        )
        rows: list[Any] = []
        for part in own:
            rows += decode_lists(part.payload)[0]  # from an authenticated worker
        return rows


def packed_parts(parts: Iterable[ResultPart]) -> bytes:
    """Return parts as the bytes of a file."""
    return bytes(msgpack.packb([(p.sink, p.task, p.epoch, p.payload) for p in parts]))


def unpacked_parts(data: bytes) -> list[ResultPart]:
    """Return the parts of a file whose digest has been checked."""
    return [ResultPart(*fields) for fields in msgpack.unpackb(data)]
