"""What loops are made of in the plan: a head, a body, and in iterations a decider.

::

              +--------------- what the body makes (iterate, delta) ---------+
              v                                                              |
    input -> HEAD --body--> BODY INPUT -> the user's operators -> ... -------+
              | ^ |                                                          |
    is ready  | | +--result--> RESULT -> what follows                        |
              v |                                                            |
            DECIDER <----------- what the body makes (cycle) ----------------+

Where the body of an iteration joins a *side* from outside, the decider reads the end of that
side, because no round begins before it.

A free loop has no rounds: its head only lets rows pass, and its body says what goes round
again and what leaves.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from millstream.errors import UsageError
from millstream.plan.spec import Spec, Traits
from millstream.plan.state_fields import Field, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import polars as pl

    from millstream.values import Batch, Value

__all__ = [
    "DECIDER",
    "BodyInput",
    "Decide",
    "Iteration",
    "IterationKind",
    "LoopHead",
    "LoopResult",
    "Outlet",
    "Port",
    "RoundState",
    "loop_position_name",
    "worker_scope",
]

T = TypeVar("T")

DECIDER = ".decider"
"""Ends the name of the operator that decides over an iteration."""


class Outlet(IntEnum):
    """Where something leaves the head of a loop, or any other operator."""

    BODY = 0
    DECIDER = 1
    RESULT = 2
    LATE = 3
    """What came too late; all else of operators that are no heads leaves at 0."""
    END = 4
    """No rows, only barriers and the end."""


class Port(IntEnum):
    """Where something comes to the head of a loop, or to its decider."""

    INPUT = 0
    RETURNED = 1
    DECISIONS = 2
    SIDES = 3


class IterationKind(StrEnum):
    """What a round begins with."""

    ITERATE = "iterate"
    CYCLE = "cycle"
    DELTA = "delta"
    FREE = "free"


_worker: ContextVar[object | None] = ContextVar("worker", default=None)
"""Who is at work, where several workers share a process."""


@contextmanager
def worker_scope(worker: object) -> Iterator[None]:
    """Let states of rounds be those of this worker."""
    token = _worker.set(worker)
    try:
        yield
    finally:
        _worker.reset(token)


@dataclass(slots=True)
class _Cell(Generic[T]):
    value: T
    number: int = 0
    begun: int = 0


class RoundState(Generic[T]):
    """The state of an iteration, as functions in its body see it.

    `value` is what it was when the round began.  Change it by what `update` returns, not
    in place: every worker has a copy of its own.
    """

    def __init__(self, value: T, owner: str = "an iteration") -> None:
        self._initial = value
        self._owner = owner
        #: For threads that do not know for whom they work.
        self._latest = _Cell(value)
        self._cells: WeakKeyDictionary[object, _Cell[T]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type[RoundState[T]], tuple[T, str]]:
        return RoundState, (self._initial, self._owner)

    @property
    def value(self) -> T:
        """The state in this round."""
        cell = self._cell()
        if not cell.begun:
            msg = (
                f"the state of {self._owner} is read where no round is under way; read "
                ".value inside of a function that the body gives to a verb, not while "
                "the flow is being built"
            )
            raise UsageError(msg)
        return cell.value

    @property
    def begun(self) -> int:
        """Rounds that began since the tasks of this worker were made."""
        return self._cell().begun

    def begin(self, number: int, value: T) -> None:
        """Begin a round, unless another task of this worker has begun it."""
        cell = self._cell()
        if number != cell.number:
            cell.number, cell.value = number, value
            cell.begun += 1
            self._latest.value = value
            self._latest.begun = cell.begun

    def reset(self) -> None:
        """Forget the rounds of former tasks; the value comes with the next."""
        cell = self._cell()
        cell.number = cell.begun = 0

    def _cell(self) -> _Cell[T]:
        worker = _worker.get()
        if worker is None:
            return self._latest
        cell = self._cells.get(worker)
        if cell is None:
            cell = self._cells[worker] = _Cell(self._initial)
        return cell


@dataclass(frozen=True, slots=True)
class Iteration:
    """What a loop does in rounds, and how often.

    Attributes
    ----------
    reduce
        Makes one of all rows of a round: of two of them, or, of data frames, of one that
        has some of them.
    until
        Whether the reduction, or the state, is good enough.
    initial, update, state
        The state of a cycle, what makes it of itself and all results of a round, and how
        the body sees it.
    improve
        Of a delta iteration: a better value for a key, or None.
    keys, best, columns
        Of a delta iteration of data frames: the key columns, what is kept of the others,
        and all of them in the order that the body knows.
    show
        What people are shown of the reduction or the state, as a number.
    hops_max
        Most times that a record may go round a free loop.
    schema
        Of the data frames that go round.
    """

    kind: IterationKind
    makes_frames: bool = False
    rounds_max: int | None = None
    reduce: Callable[..., Value] | None = None
    until: Callable[[Value], object] | None = None
    initial: Value = None
    update: Callable[[Value, Batch], Value] | None = None
    state: RoundState[Value] | None = None
    improve: Callable[[Value, Value], Value | None] | None = None
    keys: tuple[str, ...] = ()
    best: tuple[pl.Expr, ...] = ()
    columns: tuple[str, ...] = ()
    show: Callable[[Value], float] | None = None
    hops_max: int | None = None
    schema: pl.Schema | None = None

    @property
    def has_rounds(self) -> bool:
        """Whether somebody decides over it."""
        return self.kind is not IterationKind.FREE

    @property
    def does_return(self) -> bool:
        """Whether what the body makes comes back to the head."""
        return self.kind is not IterationKind.CYCLE

    def bounds(self) -> str:
        """Return when it is over."""
        if self.kind is IterationKind.FREE:
            most = _most(self.hops_max, "hop")
            return f"free, {most}" if most else "free"
        most = _most(self.rounds_max, "round")
        if self.kind is IterationKind.DELTA:
            parts = ["until nothing changes", most]
        else:
            parts = ["until enough" if self.until is not None else "", most]
        return ", ".join(part for part in parts if part)

    def kept_fields(self) -> Iterable[Field]:
        """Return what goes round; how often may change."""
        yield Field.of("kind", self.kind)
        yield Field.of("batches", "frames" if self.makes_frames else "rows")
        yield Field.columns("columns", self.schema)
        yield Field("keys", self.keys)
        yield Field("best", tuple(map(str, self.best)))
        yield Field.constant("begins with", self.initial)
        rounds = "any" if self.rounds_max is None else self.rounds_max
        yield Field.of("rounds at most", rounds, Rule.FREE)
        hops = "any" if self.hops_max is None else self.hops_max
        yield Field.of("hops at most", hops, Rule.FREE)


@dataclass(frozen=True, slots=True)
class LoopHead(Spec):
    """Where a loop begins, and where its rows come back to."""

    traits = Traits(
        keeps="loop", keeps_time=False, may_fail_on_record=False, has_operator=False
    )

    iteration: Iteration

    def detail(self) -> str:
        """Return when the loop is over."""
        return self.iteration.bounds()

    def kept_fields(self) -> Iterable[Field]:
        """Return what goes round."""
        return self.iteration.kept_fields()


@dataclass(frozen=True, slots=True)
class BodyInput(Spec):
    """What the head gives to the body."""

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=False, has_operator=False
    )


@dataclass(frozen=True, slots=True)
class Decide(Spec):
    """Decides after every round whether there is another one.

    Attributes
    ----------
    schema
        The columns of what it gets of a round, where that is data frames.
    """

    traits = Traits(keeps="end of a loop", keeps_time=False, may_fail_on_record=False)

    iteration: Iteration
    schema: pl.Schema | None = None

    def kept_fields(self) -> Iterable[Field]:
        """Return what goes round."""
        return self.iteration.kept_fields()


@dataclass(frozen=True, slots=True)
class LoopResult(Spec):
    """What the head gives when the iteration is over."""

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=False, has_operator=False
    )


def _most(count: int | None, what: str) -> str:
    if count is None:
        return ""
    return f"at most {count} {what}{'' if count == 1 else 's'}"


def loop_position_name(head: str, *, has_rounds: bool) -> str:
    """Return the name under which a head stores where it stands, beside what it holds."""
    return f"{head}.rounds" if has_rounds else f"{head}.in-flight"
