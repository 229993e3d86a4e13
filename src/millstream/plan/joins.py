"""The nodes that join two keyed streams, and what a join does with unmatched rows.

The left side is input 0 and the right side is input 1; both come by key, except where
the right side is a table that every task has all of.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    "joins_by",
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
class Join:
    """Every left row with every right row of its key.

    Attributes
    ----------
    ttl_ms
        How long a row waits for partners, by the wall clock; None for ever.
    is_endless
        Whether an input may never end, so that without `ttl_ms` the state only grows.
    """

    how: How
    ttl_ms: int | None = None
    is_endless: bool = False


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """Left rows with right rows of the same key and window.

    Attributes
    ----------
    size, slide, offset
        Windows begin at `offset` and every `slide` before and after it.
    is_event_time
        Whether windows are of event time, not of the wall clock.
    """

    how: How
    size: int
    slide: int
    offset: int = 0
    is_event_time: bool = True


@dataclass(frozen=True, slots=True)
class JoinInterval:
    """Left rows with right rows that are at least `lower` and at most `upper` later."""

    how: How
    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class JoinAsof:
    """Every left row with the right row that is nearest in time.

    Attributes
    ----------
    tolerance
        How far away that may be; None for any distance.
    is_whole
        Whether every task has all of the right side.
    is_table
        Whether a right row whose value is None takes the key out of a table.
    """

    how: How
    direction: Direction = Direction.BACKWARD
    tolerance: int | None = None
    is_whole: bool = False
    is_table: bool = False


@dataclass(frozen=True, slots=True)
class JoinTable:
    """Every left row with the newest right row, without time.

    Attributes
    ----------
    waits
        Whether left rows wait until all of the right side has come.
    is_whole
        Whether every task has all of the right side.
    """

    how: How
    waits: bool
    is_whole: bool = False


JoinSpec = Join | JoinWindow | JoinInterval | JoinAsof | JoinTable


def joins_by(spec: JoinSpec) -> str:
    """Return how rows are joined, and what bounds what is kept of them."""
    match spec:
        case Join(ttl_ms=int() as ttl_ms):
            bound = f"rows wait {ttl_ms} ms"
        case Join(is_endless=True):
            bound = "keeps all rows, and they may never end"
        case Join():
            bound = "keeps all rows"
        case JoinWindow():
            clock = "" if spec.is_event_time else " of the clock"
            slide = f" every {spec.slide} ms" if spec.slide != spec.size else ""
            bound = f"windows{clock} of {spec.size} ms{slide}"
        case JoinInterval(lower=lower, upper=upper):
            bound = f"{lower} to {upper} ms later"
        case JoinAsof(is_table=True):
            bound = "table as of the row's time"
        case JoinAsof():
            near = "" if spec.tolerance is None else f" within {spec.tolerance} ms"
            bound = f"{spec.direction}{near}"
        case _:
            bound = "waits for the table" if spec.waits else "table as it is"
    return f"{spec.how}, {bound}"


def has_whole_right(spec: object) -> bool:
    """Whether every task of a join has all of the right side."""
    return isinstance(spec, JoinAsof | JoinTable) and spec.is_whole
