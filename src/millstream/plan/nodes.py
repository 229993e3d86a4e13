"""Specs of operators on rows: one for each method that the user can call on a stream.

Those of time, windows, joins, loops and frames have modules of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from millstream.plan.spec import IN_TIME_ORDER, Spec, Traits
from millstream.plan.state_fields import Field, Rule, aggregate_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl

    from millstream.connectors.base import Sink, Source
    from millstream.plan.aggregate import Aggregate
    from millstream.plan.spec import Needed, NeededOf
    from millstream.values import Key, Row, Rows, Value

__all__ = [
    "AggregateAll",
    "AggregateByKey",
    "Collect",
    "Combine",
    "CombineAll",
    "DeadLetterLimit",
    "DeadLetters",
    "DropKey",
    "Filter",
    "FilterMap",
    "FlatMap",
    "Flatten",
    "ForEach",
    "Inspect",
    "KeyBy",
    "Limit",
    "Map",
    "MapBatches",
    "Merge",
    "Process",
    "Read",
    "Regroup",
    "Result",
    "Scan",
    "SortBy",
    "Unique",
    "Unkey",
    "Write",
    "Zip",
]


# Sources.


@dataclass(frozen=True, slots=True)
class Read(Spec):
    """Read the splits of a source.

    Attributes
    ----------
    column_count
        How many columns there are, where the planner found that fewer are needed and
        made the source leave the others out.
    """

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=False, has_operator=False
    )

    source: Source[Row]
    column_count: int | None = None

    def detail(self) -> str:
        """Return how many columns are read, where that is not all of them."""
        if self.column_count is None:
            return ""
        source: Any = self.source
        return f"{len(source.schema)} of {self.column_count} columns"


class DeclaringFunction(Protocol):
    """A user's stateful function, as far as the plan knows it."""

    def _declared_state(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return what is kept of a key."""
        ...

    def _instance(self) -> Any:
        """Return a copy for one task; its operator knows what it can do."""
        ...


# One row in, some rows out, nothing remembered; a run of these becomes one function.

_ROW_FUNCTION = Traits(
    keeps="",
    keeps_time=True,
    may_fail_on_record=True,
    fuses="rows",
    calls_function=True,
)


@dataclass(frozen=True, slots=True)
class Map(Spec):
    """One row for one row."""

    traits = _ROW_FUNCTION

    function: Callable[[Row], Row]


@dataclass(frozen=True, slots=True)
class Filter(Spec):
    """Keep the rows for which the function is true."""

    traits = _ROW_FUNCTION

    function: Callable[[Row], object]


@dataclass(frozen=True, slots=True)
class FlatMap(Spec):
    """Any number of rows for one row."""

    traits = replace(_ROW_FUNCTION, makes_many=True)

    function: Callable[[Row], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class FilterMap(Spec):
    """One row for one row, or none where the function returns None."""

    traits = _ROW_FUNCTION

    function: Callable[[Row], Row | None]


@dataclass(frozen=True, slots=True)
class Flatten(Spec):
    """The items of every row."""

    traits = Traits(
        keeps="",
        keeps_time=True,
        may_fail_on_record=True,
        fuses="rows",
        makes_many=True,
    )


@dataclass(frozen=True, slots=True)
class Inspect(Spec):
    """Call the function for its side effect."""

    traits = _ROW_FUNCTION

    function: Callable[[Row], object]


@dataclass(frozen=True, slots=True)
class KeyBy(Spec):
    """Pair every row with its key."""

    traits = _ROW_FUNCTION

    function: Callable[[Row], Key]


@dataclass(frozen=True, slots=True)
class DropKey(Spec):
    """Forget the keys."""

    traits = Traits(keeps="", keeps_time=True, may_fail_on_record=False, fuses="rows")


@dataclass(frozen=True, slots=True)
class Unkey(Spec):
    """Treat keyed rows as plain ``(key, value)`` pairs."""

    traits = Traits(keeps="", keeps_time=True, may_fail_on_record=False, fuses="rows")


# Whole batches, many inputs, or a change of partitioning.


@dataclass(frozen=True, slots=True)
class DeadLetters(Spec):
    """Records that made a function of the flow raise; the planner finds the inputs."""

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=False, has_operator=False
    )


@dataclass(frozen=True, slots=True)
class MapBatches(Spec):
    """Any list of rows for a list of rows."""

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=True, calls_function=True
    )

    function: Callable[[Rows], Rows]


@dataclass(frozen=True, slots=True)
class Regroup(Spec):
    """Nothing but a new partitioning; also the verb behind `max_parallelism`."""

    traits = Traits(
        keeps="",
        keeps_time=True,
        may_fail_on_record=False,
        has_operator=False,
        passes_columns=True,
    )

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what is needed of its output."""
        return needed_of(schema)


@dataclass(frozen=True, slots=True)
class Merge(Spec):
    """All rows of several inputs."""

    traits = Traits(
        keeps="", keeps_time=True, may_fail_on_record=False, has_operator=False
    )


@dataclass(frozen=True, slots=True)
class Zip(Spec):
    """The i-th row of the one input with the i-th row of the other."""

    traits = Traits(
        keeps="zip", keeps_time=False, may_fail_on_record=False, may_end_early=True
    )


# Operators that remember.


@dataclass(frozen=True, slots=True)
class Combine(Spec):
    """Aggregate by key inside the sending stage; put in by the planner.

    Attributes
    ----------
    has_latency_bound
        Whether somebody waits for what is held, so that it leaves before long.
    """

    traits = Traits(keeps="", keeps_time=False, may_fail_on_record=True)

    aggregate: Aggregate
    has_latency_bound: bool = False

    def detail(self) -> str:
        """Say that it is the planner's."""
        return "combine"


@dataclass(frozen=True, slots=True)
class AggregateByKey(Spec):
    """One result per key when the input ends."""

    traits = Traits(
        keeps="aggregate by key",
        keeps_time=False,
        may_fail_on_record=True,
        waits_for_end=True,
    )

    aggregate: Aggregate
    is_combined: bool = False

    def detail(self) -> str:
        """Say whether parts come, not rows."""
        return "merge" if self.is_combined else ""

    def kept_fields(self) -> Iterable[Field]:
        """Return the aggregate."""
        return aggregate_fields(self.aggregate)


@dataclass(frozen=True, slots=True)
class CombineAll(Spec):
    """Aggregate all rows of one task; put in by the planner."""

    traits = Traits(
        keeps="aggregate of a task's rows", keeps_time=False, may_fail_on_record=False
    )

    aggregate: Aggregate

    def detail(self) -> str:
        """Say that it is the planner's."""
        return "combine"

    def kept_fields(self) -> Iterable[Field]:
        """Return the aggregate."""
        return aggregate_fields(self.aggregate)


@dataclass(frozen=True, slots=True)
class AggregateAll(Spec):
    """One result over all rows when the input ends."""

    traits = Traits(
        keeps="aggregate of all rows",
        keeps_time=False,
        may_fail_on_record=True,
        waits_for_end=True,
    )

    aggregate: Aggregate
    is_combined: bool = False

    def detail(self) -> str:
        """Say whether parts come, not rows."""
        return "merge" if self.is_combined else ""

    def kept_fields(self) -> Iterable[Field]:
        """Return the aggregate."""
        return aggregate_fields(self.aggregate)


@dataclass(frozen=True, slots=True)
class Scan(Spec):
    """The running aggregate of the key after every row."""

    traits = Traits(
        keeps="running aggregate by key", keeps_time=False, may_fail_on_record=True
    )

    aggregate: Aggregate

    def kept_fields(self) -> Iterable[Field]:
        """Return the aggregate."""
        return aggregate_fields(self.aggregate)


@dataclass(frozen=True, slots=True)
class Process(Spec):
    """A user's stateful function.

    Attributes
    ----------
    in_time_order
        Whether records wait until they can be worked on in the order of time.
    """

    traits = Traits(keeps="stateful function", keeps_time=True, may_fail_on_record=True)

    function: DeclaringFunction
    in_time_order: bool = False

    def detail(self) -> str:
        """Say whether records wait for order."""
        return IN_TIME_ORDER if self.in_time_order else ""

    def kept_fields(self) -> Iterable[Field]:
        """Return what the function declares; more state and longer lives are no harm."""
        yield Field.of("in time order", self.in_time_order)
        for name, values in self.function._declared_state():  # noqa: SLF001 - private to users alone
            rule = Rule.LONGER if name.startswith("ttl of ") else Rule.SAME
            yield Field(name, values, Rule.MORE if name == "state" else rule)


@dataclass(frozen=True, slots=True)
class Unique(Spec):
    """The first of equal keys; rows are ``(row, None)`` pairs on the way in."""

    traits = Traits(keeps="unique", keeps_time=False, may_fail_on_record=False)


@dataclass(frozen=True, slots=True)
class Limit(Spec):
    """The first `rows` rows."""

    traits = Traits(
        keeps="limit",
        keeps_time=False,
        may_fail_on_record=False,
        may_end_early=True,
        passes_columns=True,
    )

    rows: int

    def detail(self) -> str:
        """Return how many."""
        return f"{self.rows}"

    def kept_fields(self) -> Iterable[Field]:
        """Return how many."""
        yield Field.of("rows at most", self.rows)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what is needed of its output."""
        return needed_of(schema)


@dataclass(frozen=True, slots=True)
class SortBy(Spec):
    """All rows in order when the input ends; only the first `limit` if given."""

    traits = Traits(
        keeps="sort", keeps_time=False, may_fail_on_record=True, waits_for_end=True
    )

    key: Callable[[Row], Value]
    is_descending: bool = False
    limit: int | None = None

    def detail(self) -> str:
        """Return how many rows are wanted, where not all are."""
        return "" if self.limit is None else f"first {self.limit}"

    def kept_fields(self) -> Iterable[Field]:
        """Return order and number."""
        yield Field.of("order", "descending" if self.is_descending else "ascending")
        yield Field.of("first rows", "all" if self.limit is None else self.limit)


# Sinks.


@dataclass(frozen=True, slots=True)
class Collect(Spec):
    """Send rows to the driver."""

    traits = Traits(
        keeps="collect",
        keeps_time=False,
        may_fail_on_record=False,
        is_sink=True,
        is_for_driver=True,
    )


@dataclass(frozen=True, slots=True)
class Result(Spec):
    """Send the one row there is to the driver; `empty` where there is none."""

    traits = Traits(
        keeps="result",
        keeps_time=False,
        may_fail_on_record=False,
        is_sink=True,
        is_for_driver=True,
    )

    empty: Value


@dataclass(frozen=True, slots=True)
class ForEach(Spec):
    """Call a function for every row."""

    traits = Traits(
        keeps="",
        keeps_time=False,
        may_fail_on_record=True,
        calls_function=True,
        is_sink=True,
    )

    function: Callable[[Row], object]


@dataclass(frozen=True, slots=True)
class DeadLetterLimit(Spec):
    """Count the dead letters of the whole job, and fail when there are more."""

    traits = Traits(
        keeps="budget of dead letters",
        keeps_time=False,
        may_fail_on_record=False,
        is_sink=True,
    )

    dead_letters_max: int

    def kept_fields(self) -> Iterable[Field]:
        """Return the budget, which may change."""
        yield Field.of("letters at most", self.dead_letters_max, Rule.FREE)


@dataclass(frozen=True, slots=True)
class Write(Spec):
    """Give rows to a sink."""

    traits = Traits(
        keeps="write", keeps_time=False, may_fail_on_record=False, is_sink=True
    )

    sink: Sink[Row]

    def kept_fields(self) -> Iterable[Field]:
        """Return the kind of sink."""
        yield Field.of("sink", type(self.sink).__qualname__)
