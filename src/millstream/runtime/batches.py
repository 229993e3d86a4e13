"""The two kinds of batches: lists of rows, and Polars data frames.

Both have a length and can be sliced; what differs between them is here.  Polars is not
imported: whoever has a data frame has imported it already.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

__all__ = ["joined"]


def joined(parts: list[Any]) -> Any:
    """Return the batches as one, in order."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return list(chain.from_iterable(parts))
    return sys.modules["polars"].concat(parts)
