"""Recognize queries that do nothing but cut a text column into pieces.

``select(col.str.extract_all(r"[a-z]+"))``, then ``explode``, then perhaps a filter of
nulls, is what the compiled loops for tokens do, many times faster.  The verbs leave a
note of such a *step* in their node, and a chain of nodes with the right notes is a
*text split*.  The query stays what it is: the notes only say that there is another way to
the same rows, and `millstream.operators.frames.text_split` takes it where it is exactly that.

Expressions are the trees that Polars writes as JSON.  Nothing here imports Polars.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.plan.frames import Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.columns.expressions import Tree
    from millstream.plan.logical import Node

__all__ = [
    "Exploded",
    "KnownOnly",
    "TextLists",
    "TextSplit",
    "TextStep",
    "known_only",
    "text_lists",
    "text_splits",
]

# A class of characters, once or more often: its longest runs are the matches.
_RUNS = re.compile(r"(\\[wWdDsS]|\[\^?\]?(?:[^\]\\]|\\.)*\])\+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TextLists:
    """One column is left: the pieces of a text column, as lists.

    Attributes
    ----------
    pattern
        What pieces match, a class of characters with a plus; None if they are all that
        is between separators.
    separator
        One character between pieces; empty if they match a pattern.
    is_lower
        Whether the text is turned into lower case first.
    """

    column: str
    name: str
    pattern: str | None
    separator: str
    is_lower: bool


@dataclass(frozen=True, slots=True)
class Exploded:
    """The items of a list column become rows.

    `has_empty` says whether a list without items becomes a row with null.
    """

    column: str
    has_empty: bool


@dataclass(frozen=True, slots=True)
class KnownOnly:
    """Rows with null in this column are left out, and no others."""

    column: str


TextStep = TextLists | Exploded | KnownOnly


@dataclass(frozen=True, slots=True)
class TextSplit:
    """A chain of nodes that cuts text into pieces, one row each.

    Attributes
    ----------
    keeps_null
        Whether a row without text becomes a row with null.
    """

    lists: TextLists
    nodes: tuple[Node, ...]
    keeps_null: bool


def text_splits(nodes: Sequence[Node]) -> list[TextSplit]:
    """Return the text splits of a chain of nodes."""
    found = []
    at = 0
    while at < len(nodes):
        split = _text_split(nodes[at:])
        if split is not None:
            found.append(split)
        at += len(split.nodes) if split is not None else 1
    return found


def _text_split(nodes: Sequence[Node]) -> TextSplit | None:
    """Return the text split that begins with the first node."""
    steps = [_step(node) for node in nodes[:3]] + [None] * 3
    lists, exploded, known = steps[:3]
    if not isinstance(lists, TextLists) or not isinstance(exploded, Exploded):
        return None
    is_known = known == KnownOnly(lists.name)
    if exploded.column != lists.name or (exploded.has_empty and not is_known):
        return None
    return TextSplit(lists, tuple(nodes[: 3 if is_known else 2]), not is_known)


def _step(node: Node) -> TextStep | None:
    return node.spec.step if isinstance(node.spec, Transform) else None


def text_lists(tree: Tree, name: str | None) -> TextLists | None:
    """Return what an expression does to a text column, if it only cuts it.

    `name` is that of the result, None if the expression itself says it.
    """
    match tree:
        case {"Alias": [inner, str(alias)]}:
            return text_lists(inner, name or alias)
        case {
            "Function": {
                "input": [text, {"Literal": {"Scalar": {"String": str(literal)}}}],
                "function": {"StringExpr": "ExtractAll"},
            }
        }:
            return _lists(text, name, literal if _RUNS.fullmatch(literal) else None, "")
        case {
            "Function": {
                "input": [text, {"Literal": {"Scalar": {"String": str(literal)}}}],
                "function": {"StringExpr": {"Split": False}},
            }
        } if len(literal) == 1 and literal.isascii() and not literal.isalpha():
            return _lists(text, name, None, literal)
        case _:
            return None


def _lists(
    text: Tree, name: str | None, pattern: str | None, separator: str
) -> TextLists | None:
    is_lower = False
    match text:
        case {"Function": {"input": [inner], "function": {"StringExpr": "Lowercase"}}}:
            text, is_lower = inner, True
    match text:
        case {"Column": str(column)} if pattern or separator:
            return TextLists(column, name or column, pattern, separator, is_lower)
        case _:
            return None


def known_only(tree: Tree) -> KnownOnly | None:
    """Return which column a predicate wants not to be null, if that is all."""
    match tree:
        case {
            "Function": {
                "input": [{"Column": str(column)}],
                "function": {"Boolean": "IsNotNull"},
            }
        }:
            return KnownOnly(column)
        case _:
            return None
