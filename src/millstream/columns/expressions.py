"""Take aggregate expressions apart: what is kept per key, and what is done at the end.

``col("x").sum() / len()`` keeps two numbers per key and divides them once.  The numbers
are *parts*: aggregates over the rows of a key that can be made of the same aggregates
over some of the rows.  The rest of the expression, with the parts as columns, is what
finishes it.

Expressions are the trees that Polars writes as JSON.  Nothing here imports Polars: whether
a part's input looks at one row at a time, only Polars can say.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "Part",
    "Refused",
    "Split",
    "Tree",
    "column",
    "digest",
    "expanded",
    "has_aggregate",
    "selectors",
    "split",
]

Tree = Any
"""A JSON value that Polars reads as an expression, or a part of one."""

COLLECT = (
    "collect the values with .implode() and finish them in .map_batches(...) after the "
    "aggregation"
)

# Aggregates that Polars writes as {"Agg": {name: ...}}, and in which field their input is.
_AGGREGATES = {
    "Sum": None,
    "Mean": None,
    "First": None,
    "FirstNonNull": None,
    "Last": None,
    "LastNonNull": None,
    "NUnique": None,
    "Count": "input",
    "Min": "input",
    "Max": "input",
    "Implode": "input",
    "Var": 0,
    "Std": 0,
}
# Aggregates that Polars writes as functions.
_FUNCTIONS = frozenset(
    {"Any", "All", "ApproxNUnique", "HasNulls", "NullCount", "Product", "TopK"}
)
# Where the inputs of the nodes are that may stand above an aggregate.
_OPERANDS = {
    "BinaryExpr": ("left", "right"),
    "Ternary": ("predicate", "truthy", "falsy"),
    "Cast": ("expr",),
    "Function": ("input",),
    "AnonymousFunction": ("input",),
}
# What a search for aggregates does not look into: it holds no expression of this level.
_OPAQUE = frozenset(
    {"Column", "Literal", "Selector", "function", "options", "dtype", "evaluation"}
)
_DIGEST_LETTERS = 10
_RENAMINGS = {"KeepName": None, "RenameAlias": "expr"}


class Refused(Exception):  # noqa: N818 - caught and said in the words of the verb
    """The expression cannot be merged from the results for some of the rows."""


@dataclass(frozen=True, slots=True)
class Part:
    """An aggregate over the rows of a key.

    Attributes
    ----------
    kind
        What Polars calls it.
    tree
        The aggregate as it was written.
    input
        What it aggregates; None for the number of rows.
    """

    kind: str
    tree: Tree
    input: Tree | None

    def over(self, tree: Tree) -> Tree:
        """Return the same aggregate of something else."""
        if "Function" in self.tree:
            function = self.tree["Function"]
            inputs = [tree, *function["input"][1:]]
            return {"Function": {**function, "input": inputs}}
        ((kind, body),) = self.tree["Agg"].items()
        place = _AGGREGATES[kind]
        if place is None:
            return {"Agg": {kind: tree}}
        if isinstance(place, int):
            return {"Agg": {kind: [tree, *body[1:]]}}
        return {"Agg": {kind: {**body, place: tree}}}

    @property
    def limit(self) -> Tree:
        """How many values are the top."""
        return self.tree["Function"]["input"][1]

    @property
    def is_bottom(self) -> bool:
        """Whether the top is that of the smallest values."""
        return bool(self.tree["Function"]["function"]["TopK"]["descending"])

    @property
    def propagates_nans(self) -> bool:
        """Whether one NaN makes the extreme of all values NaN."""
        body = self.tree["Agg"].get(self.kind) if "Agg" in self.tree else None
        return isinstance(body, dict) and bool(body.get("propagate_nans"))

    @property
    def ddof(self) -> int:
        """What a variance divides by is the number of values less this."""
        return int(self.tree["Agg"][self.kind][1])


@dataclass(slots=True)
class Split:
    """Parts, and the expression that finishes them.

    Parts are columns named by what they are, not by their place: state that was kept by
    another version of the flow is found again by it.  Those that differ only in functions,
    which cannot be compared, are numbered.
    """

    prefix: str
    parts: dict[str, Part] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def add(self, part: Part) -> str:
        """Note a part, once, and return the name of its column."""
        for name, known in self.parts.items():
            if known == part:
                return name
        name = self.named(part.tree)
        self.parts[name] = part
        return name

    def named(self, *content: Tree) -> str:
        """Return a new name for a column that is described by trees."""
        base = name = f"{self.prefix}{digest(*content)}"
        count = 1
        while name in self._names:
            count += 1
            name = f"{base}-{count}"
        self._names.add(name)
        return name


def column(name: str) -> Tree:
    """Return the expression that is a column."""
    return {"Column": name}


def digest(*content: Tree) -> str:
    """Return letters and digits that are the same for the same expressions."""
    text = json.dumps([_without_functions(tree) for tree in content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LETTERS]


def _without_functions(tree: Tree) -> Tree:
    """Return the tree without the bytes of Python functions."""
    if isinstance(tree, list):
        return [_without_functions(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: _without_functions({**value, "function": None})
        if key == "AnonymousFunction"
        else _without_functions(value)
        for key, value in tree.items()
    }


def split(tree: Tree, into: Split) -> Tree:
    """Put the parts of an expression into `into`; return what finishes them."""
    root = _without_names(tree)
    if not has_aggregate(root) and _has_column(root):
        values = {"Agg": {"Implode": {"input": root, "maintain_order": True}}}
        return column(into.add(_part(values)))
    part = _aggregate(root)
    if part is not None and part.kind == "TopK":
        return column(into.add(part))
    return _finishing(root, into)


def has_aggregate(tree: Tree) -> bool:
    """Whether an aggregate of many rows is somewhere inside."""
    if _kind(tree) is not None:
        return True
    return any(has_aggregate(child) for child in _children(tree))


def selectors(tree: Tree) -> list[Tree]:
    """Return the different choices of several columns inside."""
    if not isinstance(tree, dict | list):
        return []
    if isinstance(tree, dict) and "Selector" in tree:
        return [tree]
    found: list[Tree] = []
    for child in _children(tree, opaque=_OPAQUE - {"Selector"}):
        found += [s for s in selectors(child) if s not in found]
    return found


def expanded(tree: Tree, chosen: Mapping[int, list[str]]) -> list[Tree]:
    """Return one expression for every column that the selectors chose.

    `chosen` has the columns of the i-th of `selectors(tree)`; several move in step.
    """
    found = selectors(tree)
    counts = {len(names) for names in chosen.values()}
    if len(counts - {1}) > 1:
        msg = f"its selectors choose {' and '.join(map(str, sorted(counts)))} columns"
        raise Refused(msg)
    return [
        _replaced(
            tree,
            found,
            [chosen[s][i if len(chosen[s]) > 1 else 0] for s in range(len(found))],
        )
        for i in range(next(iter(counts - {1}), 1))
    ]


def _replaced(tree: Tree, found: list[Tree], names: list[str]) -> Tree:
    if isinstance(tree, dict):
        if tree in found:
            return column(names[found.index(tree)])
        return {
            key: value if key in _OPAQUE else _replaced(value, found, names)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_replaced(item, found, names) for item in tree]
    return tree


def _finishing(tree: Tree, into: Split) -> Tree:
    """Return the tree with the parts as columns."""
    part = _aggregate(tree)
    if part is not None:
        if part.kind == "TopK":
            msg = f"top_k and bottom_k give lists, which nothing can follow here; {COLLECT}"
            raise Refused(msg)
        return {"Alias": [column(into.add(part)), _leaf_name(tree)]}
    if not isinstance(tree, dict):
        msg = f"it has the part {tree!r}, which is not known here; {COLLECT}"
        raise Refused(msg)
    ((node, body),) = tree.items()
    if node == "Literal":
        return tree
    if node == "Alias":
        return {"Alias": [_finishing(body[0], into), body[1]]}
    if node in _RENAMINGS:
        return _finishing(_renamed(node, body), into)
    if node == "Column":
        msg = (
            f"it has the column {body!r} beside aggregates, so a key would have many "
            f"values; aggregate it too, or {COLLECT}"
        )
        raise Refused(msg)
    if node not in _OPERANDS:
        raise Refused(_not_mergeable(node))
    return {node: {**body, **_operands(node, body, into)}}


def _operands(node: str, body: Tree, into: Split) -> dict[str, Tree]:
    made = {}
    for place in _OPERANDS[node]:
        operand = body[place]
        if isinstance(operand, list):
            made[place] = [_finishing(item, into) for item in operand]
        else:
            made[place] = _finishing(operand, into)
    return made


def _aggregate(tree: Tree) -> Part | None:
    """Return the part that the root of the tree is, if it is one."""
    kind = _kind(tree)
    if kind is None:
        return None
    if kind in ("Median", "Quantile"):
        msg = (
            f"{kind.lower()} needs all values of a key at once; use "
            f"ms.approx_quantile(column, quantile), or {COLLECT}"
        )
        raise Refused(msg)
    if kind not in _AGGREGATES and kind not in _FUNCTIONS and kind != "Len":
        raise Refused(_not_mergeable(kind))
    part = _part(tree)
    if kind == "TopK" and "Literal" not in part.limit:
        msg = f"top_k and bottom_k take a plain number here; {COLLECT}"
        raise Refused(msg)
    return part


def _part(tree: Tree) -> Part:
    kind = _kind(tree)
    assert kind is not None
    if kind == "Len":
        return Part(kind, tree, None)
    if "Function" in tree:
        return Part(kind, tree, tree["Function"]["input"][0])
    body = tree["Agg"][kind]
    place = _AGGREGATES[kind]
    return Part(kind, tree, body if place is None else body[place])


def _kind(tree: Tree) -> str | None:
    """Return the name of the aggregate at the root of the tree."""
    if tree == "Len":
        return "Len"
    if not isinstance(tree, dict):
        return None
    if "Agg" in tree:
        return str(next(iter(tree["Agg"])))
    if "Function" in tree:
        name = _function_name(tree["Function"]["function"])
        return name if name in _FUNCTIONS or name == "Quantile" else None
    return None


def _function_name(function: Tree) -> str:
    """Return the innermost name: ``{"Boolean": {"Any": {...}}}`` is Any."""
    if isinstance(function, str):
        return function
    ((name, body),) = function.items()
    return _function_name(body) if name == "Boolean" else str(name)


def _not_mergeable(node: str) -> str:
    return (
        f"{node.lower()} cannot be put together from the results for some of the rows; "
        f"use an aggregate such as sum, mean, min, first, n_unique or top_k, or {COLLECT}"
    )


def _children(tree: Tree, *, opaque: frozenset[str] = _OPAQUE) -> Iterator[Tree]:
    if isinstance(tree, list):
        yield from (item for item in tree if isinstance(item, dict | list | str))
    elif isinstance(tree, dict):
        for key, value in tree.items():
            if key == "Alias":
                yield value[0]
            elif key not in opaque and isinstance(value, dict | list | str):
                yield value


def _has_column(tree: Tree) -> bool:
    if isinstance(tree, dict) and "Column" in tree:
        return True
    return any(_has_column(child) for child in _children(tree))


def _without_names(tree: Tree) -> Tree:
    """Return the expression under its outer names; the caller knows the last one."""
    while isinstance(tree, dict):
        if "Alias" in tree:
            tree = tree["Alias"][0]
        elif (node := next(iter(tree))) in _RENAMINGS:
            tree = _renamed(node, tree[node])
        else:
            break
    return tree


def _renamed(node: str, body: Tree) -> Tree:
    place = _RENAMINGS[node]
    return body if place is None else body[place]


def _leaf_name(tree: Tree) -> str:
    """Return the name that Polars gives an expression: that of its leftmost leaf."""
    if isinstance(tree, dict):
        if "Alias" in tree:
            return str(tree["Alias"][1])
        if "Column" in tree:
            return str(tree["Column"])
    first = next(_children(tree), None)
    return "len" if tree == "Len" or first is None else _leaf_name(first)
