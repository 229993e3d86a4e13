"""Find what in an expression looks at more than one row, and say what to use instead.

Expressions are the trees that Polars writes as JSON.  The list below is for good advice;
it need not be complete, because what is not on it is found by trying.

Nothing here imports Polars.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.plan.expressions import Tree

__all__ = ["ANY_ADVICE", "FUNCTION_ADVICE", "advice", "group_advice", "has_function"]

ANY_ADVICE = (
    "aggregate with .group_by(...).agg(...), or use .map_batches(...) if each batch may "
    "stand for itself"
)

FUNCTION_ADVICE = (
    "if the Python function gives one value for every row, say so by is_elementwise=True, "
    f"else {ANY_ADVICE}"
)

_AGGREGATE = (
    "aggregate with .group_by(keys).agg(...), by .group_by(pl.lit(0).alias('all')) where "
    "there is no key, and .join(...) the result if every row needs it"
)
_WINDOW = (
    "aggregate with .group_by(keys).agg(...) and give the result to every row by "
    ".join(totals, on=keys)"
)
_RUNNING = (
    "where the order of a key's rows counts, go on with .to_rows().key_by(...) and "
    ".scan(...) or .map_with_state(...)"
)
_ORDER = (
    "put the rows of a bounded frame in order with .sort(...), and keep the first with "
    ".limit(...)"
)
_DISTINCT = "use .unique(...), or count with .group_by(keys).agg(pl.len())"
_CHANCE = (
    "draw rows by what is in them, for one of ten .filter(pl.col(...).hash() % 10 == 0)"
)
_FIRST_ROWS = "keep the first rows of the frame with .limit(...)"

_NODES = {
    "Over": _WINDOW,
    "Rolling": _RUNNING,
    "Sort": _ORDER,
    "SortBy": _ORDER,
    "Gather": _ORDER,
    "Slice": _FIRST_ROWS,
}
_FUNCTIONS = {
    _AGGREGATE: (
        *("Any", "All", "ApproxNUnique", "ArgMax", "ArgMin", "Correlation", "Entropy"),
        *("HasNulls", "Hist", "Kurtosis", "MaxBy", "MinBy", "NullCount", "Product"),
        *("Quantile", "Skew"),
    ),
    _RUNNING: (
        *("CumCount", "CumMax", "CumMin", "CumProd", "CumSum", "Diff", "EwmMean"),
        *("EwmMeanBy", "EwmStd", "EwmSum", "EwmVar", "FillNullWithStrategy"),
        *("Interpolate", "InterpolateBy", "PctChange", "PeakMax", "PeakMin", "RLE"),
        *("RLEID", "RollingExpr", "RollingExprBy", "Shift", "ShiftAndFill"),
    ),
    _ORDER: ("ArgSort", "Rank", "Reverse", "TopK", "TopKBy"),
    _DISTINCT: (
        *("ArgUnique", "IsDuplicated", "IsFirstDistinct", "IsLastDistinct", "IsUnique"),
        *("Mode", "Unique", "UniqueCounts", "ValueCounts"),
    ),
    _CHANCE: ("Sample", "Shuffle"),
}
_ADVICE = {name: advice for advice, names in _FUNCTIONS.items() for name in names}
_SAID = {
    "RollingExpr": "rolling",
    "RollingExprBy": "rolling",
    "FillNullWithStrategy": "fill_null with a strategy",
    "RLE": "rle",
    "RLEID": "rle_id",
    "NUnique": "n_unique",
    "ApproxNUnique": "approx_n_unique",
}
# What to use instead of a function over the rows of a key.
_GREATEST = "the value where x is greatest is in pl.struct('x', 'value').top_k(1)"
_SMALLEST = "the value where x is smallest is in pl.struct('x', 'value').bottom_k(1)"
_COUNTED = "count with .group_by(..., 'value').agg(pl.len()) first"
_IN_GROUPS = {
    "arg_max": _GREATEST,
    "arg_min": _SMALLEST,
    "gather": _GREATEST,
    "max_by": _GREATEST,
    "min_by": _SMALLEST,
    "mode": _COUNTED,
    "slice": "use first, last, top_k or bottom_k",
    "sort": "use min, max, top_k or bottom_k",
    "sort_by": _GREATEST,
    "top_k_by": _GREATEST,
    "unique": "n_unique counts different values",
    "value_counts": _COUNTED,
}
_ROW_WISE_FILLS = ("Zero", "One")
# Where no expression of this level is.
_OPAQUE = frozenset(
    {"Column", "Literal", "Selector", "function", "options", "dtype", "evaluation"}
)


def advice(tree: Tree) -> tuple[str, str] | None:
    """Return the name of the first function inside that sees many rows, and advice."""
    return next(_findings(tree), None)


def group_advice(tree: Tree) -> str | None:
    """Return what to use instead of the first such function over the rows of a key."""
    named = (_IN_GROUPS.get(name) for name, _ in _findings(tree))
    return next((found for found in named if found is not None), None)


def has_function(tree: Tree) -> bool:
    """Whether a Python function inside may look at more than one row."""
    if isinstance(tree, list):
        return any(map(has_function, tree))
    if not isinstance(tree, dict):
        return False
    own = tree.get("AnonymousFunction")
    if own is not None and "ROW_SEPARABLE" not in own["options"]["flags"]:
        return True
    return any(has_function(value) for key, value in tree.items() if key != "function")


def _findings(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield what `advice` returns for every such function, the outer ones first."""
    if tree == "Len":
        yield "len", _AGGREGATE
    elif isinstance(tree, list):
        for item in tree:
            yield from _findings(item)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            name, found = _finding(key, value)
            if found is not None:
                yield _SAID.get(name) or _snake(name), found
            if key == "Alias":
                yield from _findings(value[0])
            elif key not in _OPAQUE:
                yield from _findings(value)


def _finding(node: str, body: Any) -> tuple[str, str | None]:
    if node == "Agg":
        return next(iter(body)), _AGGREGATE
    if node == "Function":
        name = _function(body["function"])
        return name, _ADVICE.get(name)
    return node, _NODES.get(node)


def _function(function: Any) -> str:
    """Return the innermost name: ``{"Boolean": "IsUnique"}`` is IsUnique."""
    if isinstance(function, str):
        return function
    ((name, body),) = function.items()
    if name == "Boolean":
        return _function(body)
    if name == "Random":
        method = body["method"]
        return method if isinstance(method, str) else str(next(iter(method)))
    if name == "FillNullWithStrategy" and body in _ROW_WISE_FILLS:
        return "FillNull"
    return str(name)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
