"""The node that joins two frames by key, and the columns that only joins see.

The left side is input 0, the right side is input 1; both come by their key columns.

Nothing here imports Polars; schemas are opaque.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.plan.spec import Spec, Traits
from millstream.plan.state_fields import Field

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from millstream.plan.frames import JoinFrames
    from millstream.plan.joins import Join, JoinAsof, JoinInterval, JoinWindow

__all__ = ["LATE_SIDE", "JoinFrameStreams", "late_name"]

LATE_SIDE = "__side"
"""The side from which a late row came."""


def late_name(side: int, column: str) -> str:
    """Return the name of a column among late rows, which may be of either side."""
    return f"{side}.{column}"


@dataclass(frozen=True, slots=True)
class JoinFrameStreams(Spec):
    """Rows of two frames that have the same keys, and times that suit each other.

    Attributes
    ----------
    by
        Which rows suit each other; the same as for keyed streams.
    columns
        The keys, and what columns are called.
    left_schema
        As users see it.
    """

    traits = Traits(
        keeps="join of frames by key",
        keeps_time=False,
        may_fail_on_record=False,
        takes_frames=True,
    )

    by: Join | JoinWindow | JoinInterval | JoinAsof
    columns: JoinFrames
    left_schema: pl.Schema

    def detail(self) -> str:
        """Return how rows are joined, and what bounds what is kept of them."""
        return self.by.detail()

    def kept_fields(self) -> Iterable[Field]:
        """Return who meets whom, and the columns of both sides."""
        yield from self.by.kept_fields()
        yield Field("left on", self.columns.left_on)
        yield Field("right on", self.columns.right_on)
        yield Field.of("nulls equal", self.columns.nulls_equal)
        yield Field.columns("left columns", self.left_schema)
        yield Field.columns("right columns", self.columns.right_schema)
