"""The nodes that join two keyed streams, and what a join does with unmatched rows.

The left side is input 0 and the right side is input 1; both come by key, except where
the right side is a table that every task has all of.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.plan.spec import Spec, Traits
from millstream.plan.state_fields import Field, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LEFT",
    "RIGHT",
    "Direction",
    "How",
    "Join",
    "JoinAsof",
    "JoinInterval",
    "JoinSpec",
    "JoinTable",
    "JoinWindow",
    "has_whole_right",
]

LEFT, RIGHT = 0, 1
"""The inputs of a join."""


class How(StrEnum):
    """Which rows come out of a join."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def makes_pairs(self) -> bool:
        """Whether results are pairs of both sides, and not rows of the left side."""
        return self not in {How.SEMI, How.ANTI}

    @property
    def pads_left(self) -> bool:
        """Whether a left row without a partner comes out."""
        return self in {How.LEFT, How.FULL, How.ANTI}

    @property
    def pads_right(self) -> bool:
        """Whether a right row without a partner comes out."""
        return self in {How.RIGHT, How.FULL}

    def pads(self, side: int) -> bool:
        """Whether a row of a side comes out without a partner."""
        return self.pads_left if side == LEFT else self.pads_right


class Direction(StrEnum):
    """Where the nearest row may lie, seen from the left one."""

    BACKWARD = "backward"
    FORWARD = "forward"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True)
class Join(Spec):
    """Every left row with every right row of its key.

    Attributes
    ----------
    ttl_ms
        How long a row waits for partners, by the wall clock; None for ever.
    is_endless
        Whether an input may never end, so that without `ttl_ms` the state only grows.
    """

    traits = Traits(keeps="join", keeps_time=False, may_fail_on_record=False)

    how: How
    ttl_ms: int | None = None
    is_endless: bool = False

    def detail(self) -> str:
        """Return how rows are joined, and what bounds what is kept of them."""
        if self.ttl_ms is not None:
            return f"{self.how}, rows wait {self.ttl_ms} ms"
        end = ", and they may never end" if self.is_endless else ""
        return f"{self.how}, keeps all rows{end}"

    def kept_fields(self) -> Iterable[Field]:
        """Return who meets whom, and for how long."""
        yield Field.of("how", self.how)
        yield Field.span("ttl", self.ttl_ms, Rule.LONGER)


@dataclass(frozen=True, slots=True)
class JoinWindow(Spec):
    """Left rows with right rows of the same key and window.

    Attributes
    ----------
    size, slide, offset
        Windows begin at `offset` and every `slide` before and after it.
    is_event_time
        Whether windows are of event time, not of the wall clock.
    """

    traits = Traits(keeps="join by windows", keeps_time=False, may_fail_on_record=False)

    how: How
    size: int
    slide: int
    offset: int = 0
    is_event_time: bool = True

    def detail(self) -> str:
        """Return how rows are joined, and what bounds what is kept of them."""
        clock = "" if self.is_event_time else " of the clock"
        slide = f" every {self.slide} ms" if self.slide != self.size else ""
        return f"{self.how}, windows{clock} of {self.size} ms{slide}"

    def kept_fields(self) -> Iterable[Field]:
        """Return who meets whom, and for how long."""
        yield Field.of("how", self.how)
        clock = "event time" if self.is_event_time else "the clock"
        bounds = f"{self.size} ms every {self.slide} ms from {self.offset} ms"
        yield Field.of("windows", f"{bounds} of {clock}")


@dataclass(frozen=True, slots=True)
class JoinInterval(Spec):
    """Left rows with right rows that are at least `lower` and at most `upper` later."""

    traits = Traits(
        keeps="join by interval", keeps_time=False, may_fail_on_record=False
    )

    how: How
    lower: int
    upper: int

    def detail(self) -> str:
        """Return how rows are joined, and what bounds what is kept of them."""
        return f"{self.how}, {self.lower} to {self.upper} ms later"

    def kept_fields(self) -> Iterable[Field]:
        """Return who meets whom, and for how long."""
        yield Field.of("how", self.how)
        yield Field.of("interval", f"{self.lower} to {self.upper} ms")


@dataclass(frozen=True, slots=True)
class JoinAsof(Spec):
    """Every left row with the right row that is nearest in time.

    Attributes
    ----------
    tolerance
        How far away that may be; None for any distance.
    is_broadcast
        Whether every task has all of the right side.
    is_table
        Whether a right row whose value is None takes the key out of a table.
    """

    traits = Traits(
        keeps="join as of a time", keeps_time=False, may_fail_on_record=False
    )

    how: How
    direction: Direction = Direction.BACKWARD
    tolerance: int | None = None
    is_broadcast: bool = False
    is_table: bool = False

    def detail(self) -> str:
        """Return how rows are joined, and what bounds what is kept of them."""
        if self.is_table:
            return f"{self.how}, table as of the row's time"
        near = "" if self.tolerance is None else f" within {self.tolerance} ms"
        return f"{self.how}, {self.direction}{near}"

    def kept_fields(self) -> Iterable[Field]:
        """Return who meets whom, and for how long."""
        yield Field.of("how", self.how)
        yield Field.of("direction", self.direction)
        yield Field.span("tolerance", self.tolerance)
        yield Field.of("whole right side", self.is_broadcast)
        yield Field.of("table", self.is_table)


@dataclass(frozen=True, slots=True)
class JoinTable(Spec):
    """Every left row with the newest right row, without time.

    Attributes
    ----------
    waits
        Whether left rows wait until all of the right side has come.
    is_broadcast
        Whether every task has all of the right side.
    """

    traits = Traits(
        keeps="join with a table", keeps_time=False, may_fail_on_record=False
    )

    how: How
    waits: bool
    is_broadcast: bool = False

    def detail(self) -> str:
        """Return how rows are joined, and what bounds what is kept of them."""
        bound = "waits for the table" if self.waits else "table as it is"
        return f"{self.how}, {bound}"

    def kept_fields(self) -> Iterable[Field]:
        """Return who meets whom, and for how long."""
        yield Field.of("how", self.how)
        yield Field.of("waits", self.waits)
        yield Field.of("whole right side", self.is_broadcast)


JoinSpec = Join | JoinWindow | JoinInterval | JoinAsof | JoinTable


def has_whole_right(spec: object) -> bool:
    """Whether every task of a join has all of the right side."""
    return isinstance(spec, JoinAsof | JoinTable) and spec.is_broadcast
