"""Nodes of columnar streams: batches are Polars data frames.

They stand in the same plan as the nodes of rows and obey the same rules.  Nothing here
imports Polars but for annotations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from millstream.plan.frame_windows import HIDDEN
from millstream.plan.needed_columns import aggregation_columns, no_rows, united
from millstream.plan.spec import ALL_COLUMNS, Spec, Traits
from millstream.plan.state_fields import Field, Rule, aggregation_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl

    from millstream.columns.table import FrameAggregation
    from millstream.operators.frames.tokenize import TokenClass
    from millstream.plan.spec import Needed, NeededOf

    _How = Literal["inner", "left", "right", "full", "semi", "anti"]
    from millstream.plan.text_steps import TextStep

__all__ = [
    "AggregateFrame",
    "CollectFrames",
    "CombineFrame",
    "JoinFrames",
    "JoinStatic",
    "MapFrames",
    "SortFrame",
    "ToFrame",
    "ToRows",
    "Tokens",
    "Transform",
    "UniqueFrame",
]


@dataclass(frozen=True, slots=True)
class Transform(Spec):
    """A row-wise query: a lazy frame for a lazy frame; a run of them is one query.

    `step` says what it does where `millstream.plan.text_steps` has a word for it.
    """

    traits = Traits(
        keeps="",
        keeps_time=True,
        may_fail_on_record=True,
        fuses="query",
        takes_frames=True,
    )

    function: Callable[[pl.LazyFrame], pl.LazyFrame]
    step: TextStep | None = None


@dataclass(frozen=True, slots=True)
class MapFrames(Spec):
    """Any data frame for a data frame.

    Attributes
    ----------
    needs
        Which columns it looks at: all, those that its consumers need, or none.
    schema
        Of the result, where the function may return another one by mistake.
    """

    traits = Traits(
        keeps="", keeps_time=True, may_fail_on_record=True, takes_frames=True
    )

    function: Callable[[pl.DataFrame], object]
    needs: Literal["all", "the same", "nothing"] = "all"
    schema: pl.Schema | None = None

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what `needs` says."""
        match self.needs:
            case "nothing":
                return frozenset()
            case "the same":
                return needed_of(schema)
        return ALL_COLUMNS


@dataclass(frozen=True, slots=True)
class ToRows(Spec):
    """Turn frames into rows, which are dicts."""

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=False, takes_frames=True
    )


@dataclass(frozen=True, slots=True)
class ToFrame(Spec):
    """Turn rows into frames with this schema."""

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=True, takes_frames=True
    )

    schema: pl.Schema


@dataclass(frozen=True, slots=True)
class CombineFrame(Spec):
    """Aggregate by key inside the sending stage; put in by the planner.

    Attributes
    ----------
    has_latency_bound
        Whether somebody waits for what is held, so that it leaves before long.
    """

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=False, takes_frames=True
    )

    aggregation: FrameAggregation
    has_latency_bound: bool = False

    def detail(self) -> str:
        """Say that it is the planner's."""
        return "combine"

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what is aggregated."""
        return aggregation_columns(self.aggregation)


@dataclass(frozen=True, slots=True)
class AggregateFrame(Spec):
    """One row per key when the input ends."""

    traits = Traits(
        keeps="aggregate of a frame by key",
        keeps_time=False,
        may_fail_on_record=False,
        waits_for_end=True,
        takes_frames=True,
    )

    aggregation: FrameAggregation
    is_combined: bool = False

    def detail(self) -> str:
        """Say whether parts come, not rows."""
        return "merge" if self.is_combined else ""

    def kept_fields(self) -> Iterable[Field]:
        """Return keys and aggregates; what is not asked for any more is left out."""
        return aggregation_fields(self.aggregation, Rule.FEWER)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what is aggregated."""
        return aggregation_columns(self.aggregation)


@dataclass(frozen=True, slots=True)
class SortFrame(Spec):
    """All rows in order when the input ends; only the first `limit` if given.

    Attributes
    ----------
    is_narrowed
        Whether the planner may have left out columns that nobody needs.
    """

    traits = Traits(
        keeps="sort of a frame",
        keeps_rows=True,
        keeps_time=False,
        may_fail_on_record=False,
        waits_for_end=True,
        passes_columns=True,
        takes_frames=True,
    )

    by: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: tuple[bool, ...]
    limit: int | None = None
    schema: pl.Schema | None = None
    is_narrowed: bool = False

    def detail(self) -> str:
        """Return how many rows are wanted, where not all are."""
        return "" if self.limit is None else f"first {self.limit}"

    def kept_fields(self) -> Iterable[Field]:
        """Return order, number and columns."""
        yield Field("by", self.by)
        yield Field("descending", tuple(map(str, self.descending)))
        yield Field("nulls last", tuple(map(str, self.nulls_last)))
        yield Field.of("first rows", "all" if self.limit is None else self.limit)
        # Often it has no rows yet; if it has some, they are looked at when restored.
        yield Field.columns("columns", self.schema, Rule.FREE)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what it sorts by, and what goes through."""
        return united([frozenset(self.by), needed_of(schema)])

    def narrowed(self) -> SortFrame:
        """Return it as it sorts rows that may lack columns."""
        return replace(self, is_narrowed=True)


@dataclass(frozen=True, slots=True)
class JoinFrames(Spec):
    """Every row of input 0 with those of input 1, of which every task has all."""

    traits = Traits(
        keeps="join of a frame with a whole one",
        keeps_time=False,
        may_fail_on_record=False,
        takes_frames=True,
    )

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str
    right_schema: pl.Schema
    suffix: str = "_right"
    nulls_equal: bool = False
    left_schema: pl.Schema | None = None

    def query(self, left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
        """Return the join of two lazy frames; left rows stay in order."""
        return left.join(
            right,
            left_on=list(self.left_on),
            right_on=list(self.right_on),
            how=cast("_How", self.how),  # a verb has checked it
            suffix=self.suffix,
            nulls_equal=self.nulls_equal,
            maintain_order="left",
        )

    def kept_fields(self) -> Iterable[Field]:
        """Return who meets whom, and the columns of both sides."""
        yield Field.of("how", self.how)
        yield Field("left on", self.left_on)
        yield Field("right on", self.right_on)
        yield Field.of("nulls equal", self.nulls_equal)
        yield Field.columns("left columns", self.left_schema)
        yield Field.columns("right columns", self.right_schema)


@dataclass(frozen=True, slots=True)
class JoinStatic(Spec):
    """Every row with those of a data frame that travels with the plan."""

    traits = Traits(
        keeps="", keeps_time=True, may_fail_on_record=False, takes_frames=True
    )

    join: JoinFrames
    right: pl.DataFrame

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return the keys, what goes through, and what gives others their names."""
        answer = self.join.query(no_rows(schema), self.right.lazy()).collect_schema()
        needed = needed_of(answer)
        if needed is None:
            return ALL_COLUMNS
        names = needed | {*self.join.left_on} | {*self.join.right_schema}
        return names.intersection(schema)


@dataclass(frozen=True, slots=True)
class UniqueFrame(Spec):
    """The first row of every key, as soon as it comes; `schema` is that of the keys."""

    traits = Traits(
        keeps="unique rows of a frame",
        keeps_time=False,
        may_fail_on_record=False,
        takes_frames=True,
    )

    keys: tuple[str, ...]
    schema: pl.Schema | None = None

    def kept_fields(self) -> Iterable[Field]:
        """Return the keys."""
        yield Field.columns("keys", self.schema)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return the keys, and what goes through."""
        return united([frozenset(self.keys), needed_of(schema)])


@dataclass(frozen=True, slots=True)
class Tokens(Spec):
    """The tokens of a text column, one row each."""

    traits = Traits(
        keeps="", keeps_time=True, may_fail_on_record=False, takes_frames=True
    )

    column: str
    token_class: TokenClass

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return the text, and time."""
        return frozenset([self.column, *HIDDEN])


@dataclass(frozen=True, slots=True)
class CollectFrames(Spec):
    """Send data frames to the driver."""

    traits = Traits(
        keeps="collect of frames",
        keeps_time=False,
        may_fail_on_record=False,
        is_sink=True,
        is_for_driver=True,
        takes_frames=True,
    )

    schema: pl.Schema | None = None

    def kept_fields(self) -> Iterable[Field]:
        """Return the columns."""
        yield Field.columns("columns", self.schema, Rule.ANY_ORDER)
