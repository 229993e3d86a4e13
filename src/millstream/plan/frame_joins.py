"""The node that joins two frames by key, and the columns that only joins see.

The left side is input 0, the right side is input 1; both come by their key columns.

Nothing here imports Polars; schemas are opaque.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.plan.frames import JoinFrames
    from millstream.plan.joins import Join, JoinAsof, JoinInterval, JoinWindow

__all__ = ["LATE_SIDE", "JoinFrameStreams", "late_name"]

LATE_SIDE = "__side"
"""The side from which a late row came."""


def late_name(side: int, column: str) -> str:
    """Return the name of a column among late rows, which may be of either side."""
    return f"{side}.{column}"


@dataclass(frozen=True, slots=True)
class JoinFrameStreams:
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

    by: Join | JoinWindow | JoinInterval | JoinAsof
    columns: JoinFrames
    left_schema: Any
