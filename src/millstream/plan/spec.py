"""What every kind of operator says of itself in the plan, in one place.

A *spec* is what the user asked for, frozen, without anything that runs.  Its `Traits` are
the facts that planner, builder and fault handling go by; its methods tell what only it
knows: what it shows to people, what it keeps, which columns it looks at.  So a new kind of
operator is described where it is defined, and no list elsewhere has to learn of it.

Nothing here knows a single kind, nor what carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl

    from millstream.plan.state_fields import Field

    Needed = frozenset[str] | None
    NeededOf = Callable[[pl.Schema], Needed]

__all__ = ["ALL_COLUMNS", "IN_TIME_ORDER", "Spec", "Traits"]

ALL_COLUMNS: Needed = None
"""What needs every column, those included that nobody knows of."""

IN_TIME_ORDER = "in the order of time"
"""What `explain` shows of operators whose rows wait for their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Facts about one kind of operator.

    The first three have no default: who forgets one of them loses rows or state.

    Attributes
    ----------
    keeps
        What it keeps from batch to batch, in a few words; empty if it keeps nothing that
        a cut does not find sent on.
    keeps_time
        Whether rows that come with a timestamp leave with one.
    may_fail_on_record
        Whether a record may make it raise, so that it may send dead letters.
    has_operator
        Whether a task has an operator for it; where not, only channels and routes do.
    takes_frames
        Whether its operator is made for data frames, and so needs Polars.
    fuses
        The kind of function that a run of such operators becomes: of ``"rows"``, or one
        lazy ``"query"``; None if it stays by itself.
    makes_many
        Whether one row may become several.
    calls_function
        Whether it has a `function` of the user's, which may keep state of its own.
    is_sink
        Whether nothing comes out of it.
    is_for_driver
        Whether it sends rows to the driver.
    waits_for_end
        Whether it makes rows only when its input has ended.
    may_end_early
        Whether it may need no more rows while its input still has some.
    passes_columns
        Whether frames leave it with the columns with which they came.
    keeps_rows
        Whether it keeps rows of frames, of which the planner may have left columns out.
    """

    keeps: str
    keeps_time: bool
    may_fail_on_record: bool
    has_operator: bool = True
    takes_frames: bool = False
    fuses: Literal["rows", "query"] | None = None
    makes_many: bool = False
    calls_function: bool = False
    is_sink: bool = False
    is_for_driver: bool = False
    waits_for_end: bool = False
    may_end_early: bool = False
    passes_columns: bool = False
    keeps_rows: bool = False


class Spec:
    """What an operator does; every kind is a frozen dataclass that inherits from this."""

    __slots__ = ()

    traits: ClassVar[Traits]

    def detail(self) -> str:
        """Return what `explain` shows behind the operator's name; empty for nothing."""
        return ""

    def kept_fields(self) -> Iterable[Field]:
        """Return what is kept, as far as another version of the flow must agree on it."""
        return ()

    def columns_needed(
        self,
        schema: pl.Schema,  # noqa: ARG002 - for those that look at some columns only
        needed_of: NeededOf,  # noqa: ARG002 - likewise
    ) -> Needed:
        """Return which columns of its input it looks at.

        Parameters
        ----------
        schema
            Of the input.
        needed_of
            Returns which columns are needed of the output, if that has a given schema.
        """
        return ALL_COLUMNS

    def narrowed(self) -> Self:
        """Return it as it is where the planner may have left columns out."""
        return self
