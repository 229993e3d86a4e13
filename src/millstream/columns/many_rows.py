"""Find what in an expression looks at more than one row, and say what to use instead.

Expressions are the trees that Polars writes as JSON.  What looks at one row at a time is
in the table of `millstream.columns.element_wise`; everything else is a finding.  The lists
below are for good advice and need not be complete.

Nothing here imports Polars.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.columns.element_wise import (
    ELEMENT_WISE,
    LENGTHENING,
    OPERATORS,
    WHOLE,
    function_name,
    is_constant,
    is_promised,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.columns.expressions import Tree

__all__ = [
    "ANY_ADVICE",
    "CODES",
    "LENGTH_ADVICE",
    "Finding",
    "coded_inputs",
    "finding",
    "group_advice",
]

ANY_ADVICE = (
    "aggregate with .group_by(...).agg(...), or use .map_batches(...) if each batch may "
    "stand for itself"
)

LENGTH_ADVICE = (
    "use .filter(...), .drop_nulls(...) or .explode(...) of the frame, and pl.lit(...) of "
    "one value"
)
CODES = (
    "the number of a category depends on those seen before it, so compare the texts, "
    ".cast(pl.String), or cast to a pl.Enum, whose numbers are fixed"
)

_PYTHON = (
    "if the Python function gives one value for every row, say so by is_elementwise=True, "
    f"else {ANY_ADVICE}"
)
_FOLD = (
    "use pl.sum_horizontal(...) and its like, or pl.map_batches(columns, function, "
    "is_elementwise=True) for a function of your own that looks at one row"
)
_TABLE = (
    "give it the values themselves, or .join(...) the frame that has them; where every "
    "row has a list of its own, use .list.contains(...)"
)
_FORMAT = "say how the texts are written, for example format='%Y-%m-%d'"
_BREAKS = (
    "compute the breaks with .group_by(...).agg(ms.approx_quantile(...)) and use "
    ".bin_intervals(breaks, labels=...)"
)
_EXPRESSION = "write it as an expression of Polars instead of SQL"
_TYPES = "write the expression itself; Frame.schema says what types the columns have"

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
    "PipeWithDtype": _TYPES,
    "Rolling": _RUNNING,
    "Sort": _ORDER,
    "SortBy": _ORDER,
    "Gather": _ORDER,
    "Slice": _FIRST_ROWS,
}
_FUNCTIONS = {
    _AGGREGATE: (
        *("All", "And", "Any", "ApproxNUnique", "ApproxQuantile", "ArgMax", "ArgMin"),
        *("ConcatVertical", "Correlation", "Entropy", "HasNulls", "Hist", "IsEmpty"),
        *("IsSorted", "Kurtosis", "MaxBy", "MinBy", "NullCount", "Or", "Product"),
        *("Quantile", "Skew", "Xor"),
    ),
    _BREAKS: ("QCut", "Quantiles", "Ranks"),
    _FOLD: (
        *("CumFoldHorizontal", "CumReduceHorizontal", "FoldHorizontal"),
        *("ReduceHorizontal",),
    ),
    _FORMAT: ("StrptimeGuessed",),
    _EXPRESSION: ("Sql",),
    _RUNNING: (
        *("CumCount", "CumMax", "CumMin", "CumProd", "CumSum", "Diff", "EwmMean"),
        *("EwmMeanBy", "EwmStd", "EwmSum", "EwmSumBy", "EwmVar"),
        *("Backward", "Forward", "Max", "Mean", "Min"),
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
    "ConcatVertical": "str.join",
    "FoldHorizontal": "fold",
    "And": "bitwise_and",
    "Or": "bitwise_or",
    "Xor": "bitwise_xor",
    "QCut": "qcut",
    "Quantiles": "bin_quantiles",
    "Ranks": "bin_ranks",
    "ReduceHorizontal": "reduce",
    "RollingExpr": "rolling",
    "RollingExprBy": "rolling",
    "StrptimeGuessed": "a time without a format",
    "RLE": "rle",
    "RLEID": "rle_id",
    "NUnique": "n_unique",
    "ApproxNUnique": "approx_n_unique",
}
# For what cannot be looked into, and for what nobody has looked at.
_UNSURE = (ANY_ADVICE, _EXPRESSION, _FOLD)
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
# Where no expression is.
_OPAQUE = frozenset(
    {"descending", "dtype", "function", "mapping", "options", "sort_options", "variant"}
)
_LEAVES = frozenset({"Column", "Field", "Selector"})
# Where the one operand is, of nodes that change a value, or its name.
_RENAMINGS: dict[str, int | str | None] = {
    "Alias": 0,
    "Cast": "expr",
    "KeepName": None,
    "RenameAlias": "expr",
}
_SIDE_BY_SIDE = {
    "BinaryExpr": ("left", "right"),
    "Ternary": ("predicate", "truthy", "falsy"),
}
_EVALUATED = frozenset({"Array", "ArrayAgg", "List", "ListAgg"})
_CODES = frozenset({"ToPhysical", "Categorical.Physical"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in an expression that keeps it from being row-wise.

    Attributes
    ----------
    name
        What the user wrote.
    words
        What it does, to follow the name.
    instead
        What to use.
    """

    name: str
    words: str
    instead: str


def finding(tree: Tree, *, in_groups: bool = False) -> Finding | None:
    """Return the first thing inside that does not give one value for one row.

    `in_groups` is for what is aggregated: it may have any number of values for a row.
    """
    return next(_findings(tree, is_free=in_groups), None)


def group_advice(tree: Tree) -> str | None:
    """Return what to use instead of the first such function over the rows of a key."""
    found = (_IN_GROUPS.get(item.name) for item in _findings(tree, is_free=True))
    return next((advice for advice in found if advice is not None), None)


def coded_inputs(tree: Tree) -> Iterator[Tree]:
    """Yield the expressions whose physical numbers are taken."""
    if isinstance(tree, list):
        for item in tree:
            yield from coded_inputs(item)
    elif isinstance(tree, dict):
        for node, body in tree.items():
            if node == "Function" and function_name(body["function"]) in _CODES:
                yield body["input"][0]
            if node not in ("Literal", "function"):
                yield from coded_inputs(body)


def _findings(tree: Tree, *, is_free: bool) -> Iterator[Finding]:
    """Yield what is found, the outer ones first.

    `is_free` says that the tree need not have one value per row: nothing stands beside it.
    """
    if not isinstance(tree, dict):
        yield _unknown(str(tree)) if tree != "Len" else _many("len", _AGGREGATE)
        return
    ((node, body),) = tree.items()
    if node in _RENAMINGS:
        place = _RENAMINGS[node]
        inner = body if place is None else body[place]
        yield from _findings(inner, is_free=is_free)
    elif node in _SIDE_BY_SIDE:
        if node == "BinaryExpr" and body["op"] not in OPERATORS:
            yield _unknown(body["op"])
        operands = [body[place] for place in _SIDE_BY_SIDE[node]]
        yield from _beside(operands, is_free=is_free)
    elif node in _LOOKS:
        yield from _LOOKS[node](body, is_free)
    elif node not in _LEAVES:
        name = _SAID.get(node) or _snake(node)
        yield _many(name, _NODES[node]) if node in _NODES else _unknown(name)
        yield from _inside(body)


def _beside(operands: list[Tree], *, is_free: bool) -> Iterator[Finding]:
    """Look into what stands side by side: values of the same row, if of as many rows."""
    varying = [operand for operand in operands if not is_constant(operand)]
    for operand in operands:
        is_alone = len(varying) == 1 and operand is varying[0]
        yield from _findings(operand, is_free=is_free and is_alone)


def _in_function(body: Tree, is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - one of _LOOKS
    name = function_name(body["function"])
    operands: list[Tree] = body["input"]
    if name in ELEMENT_WISE:
        whole = WHOLE.get(name, ())
        if not all(map(is_constant, (operands[i] for i in whole if i < len(operands)))):
            yield _many(f"{_said(name)} of a column", _TABLE)
        others = [item for i, item in enumerate(operands) if i not in whole]
        yield from _beside(others, is_free=is_free)
    elif name in LENGTHENING:
        yield from _lengthening(_said(name), operands[0], is_free)
    elif name == "FfiPlugin":
        if not is_promised(body["function"][name]["flags"]):
            yield Finding("a plugin", _MAY, _PYTHON)
        yield from _beside(operands, is_free=is_free)
    else:
        advice = _ADVICE.get(name.rpartition(".")[2], ANY_ADVICE)
        words = _MAY if advice in _UNSURE else _MANY
        yield Finding(_said(name), words, advice)
        yield from _inside(operands)


def _in_python(body: Tree, is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - one of _LOOKS
    if not is_promised(body["options"]):
        yield Finding("a Python function", _MAY, _PYTHON)
    yield from _beside(body["input"], is_free=is_free)


def _in_literal(body: Tree, _is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - one of _LOOKS
    if next(iter(body)) not in ("Dyn", "Scalar"):
        yield _long("a Series")


def _in_filter(body: Tree, is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - one of _LOOKS
    if not is_free:
        yield _long("filter")
    yield from _beside([body["input"], body["by"]], is_free=False)


def _in_explode(body: Tree, is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - one of _LOOKS
    yield from _lengthening("explode", body["input"], is_free)


def _lengthening(name: str, tree: Tree, is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - as above
    if not is_free:
        yield _long(name)
    yield from _findings(tree, is_free=is_free)


def _in_struct(body: Tree, _is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - one of _LOOKS
    yield from _beside([body["expr"], *body["evaluation"]], is_free=False)


def _in_eval(body: Tree, is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - one of _LOOKS
    if _first_name(body["variant"]) not in _EVALUATED:
        yield _many("cumulative_eval", _RUNNING)
    yield from _in_items(body["evaluation"])
    yield from _findings(body["expr"], is_free=is_free)


def _in_aggregate(body: Tree, _is_free: bool) -> Iterator[Finding]:  # noqa: FBT001 - one of _LOOKS
    ((kind, inner),) = body.items()
    yield _many(_SAID.get(kind) or _snake(kind), _AGGREGATE)
    yield from _inside(inner)


_LOOKS: dict[str, Callable[[Tree, bool], Iterator[Finding]]] = {
    "Agg": _in_aggregate,
    "AnonymousFunction": _in_python,
    "Eval": _in_eval,
    "Explode": _in_explode,
    "Filter": _in_filter,
    "Function": _in_function,
    "Literal": _in_literal,
    "StructEval": _in_struct,
}


def _in_items(tree: Tree) -> Iterator[Finding]:
    """Look into what is done with the items of a list: anything that is not by chance."""
    if isinstance(tree, list):
        for item in tree:
            yield from _in_items(item)
    elif isinstance(tree, dict):
        for node, body in tree.items():
            if node == "AnonymousFunction" and not is_promised(body["options"]):
                yield Finding("a Python function", _MAY, _PYTHON)
            elif node == "Function" and "Random" in body["function"]:
                yield _many(_said(function_name(body["function"])), _CHANCE)
            if node not in ("Literal", "function"):
                yield from _in_items(body)


def _inside(body: Tree) -> Iterator[Finding]:
    """Yield the findings below a node that is one itself."""
    if isinstance(body, list):
        for item in body:
            yield from _inside(item)
    elif isinstance(body, dict):
        for key, value in body.items():
            if key[:1].isupper():
                yield from _findings({key: value}, is_free=True)
            elif key not in _OPAQUE:
                yield from _inside(value)


_MANY = "looks at more than one row, and a stream comes in batches cut anywhere"
_MAY = "may look at more than one row, and a stream comes in batches cut anywhere"


def _many(name: str, instead: str) -> Finding:
    return Finding(name, _MANY, instead)


def _unknown(name: str) -> Finding:
    return Finding(name, _MAY, ANY_ADVICE)


def _long(name: str) -> Finding:
    return Finding(
        name, "makes more or fewer values than there are rows", LENGTH_ADVICE
    )


def _said(name: str) -> str:
    """Return what a function is called by who writes it."""
    group, _, inner = name.rpartition(".")
    if group == "FillNullWithStrategy":
        return "fill_null with a strategy"
    return _SAID.get(inner) or _snake(inner)


def _first_name(body: Tree) -> str:
    return body if isinstance(body, str) else str(next(iter(body)))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
