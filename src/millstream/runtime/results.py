"""Rows that sinks send to the driver, by the epoch that they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack

from millstream.errors import OperationalError
from millstream.state.plain import decode_lists

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.values import Rows

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

    def rows(self, sink: str) -> Rows:
        """Return all rows of a sink, in the order of tasks.

        Raises
        ------
        OperationalError
            If they cannot be had here; a class of theirs may be the workers' alone.
        """
        own = sorted(
            (part for part in self._parts if part.sink == sink),
            key=lambda part: part.task,
        )
        return [row for part in own for row in _decoded(part)]


def _decoded(part: ResultPart) -> Rows:
    """Return the rows of a part; a pickle in it may raise any `BaseException`."""
    what = f"the rows that task {part.task} sent to sink {part.sink!r} cannot be read"
    try:
        [rows] = decode_lists(part.payload)  # from an authenticated worker
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        msg = (
            f"{what} in the driver ({type(error).__name__}: {error}); let it import "
            "what the workers can import"
        )
        raise OperationalError(msg) from error
    if type(rows) is not list:
        msg = f"{what}: they are a {type(rows).__name__} and no list"
        raise OperationalError(msg)
    return rows


def packed_parts(parts: Iterable[ResultPart]) -> bytes:
    """Return parts as the bytes of a file."""
    return bytes(msgpack.packb([(p.sink, p.task, p.epoch, p.payload) for p in parts]))


def unpacked_parts(data: bytes) -> list[ResultPart]:
    """Return the parts of a file whose digest has been checked."""
    return [ResultPart(*fields) for fields in msgpack.unpackb(data)]
