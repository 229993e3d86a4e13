"""Two ways to cut text into pieces that give the same: tokens, and Polars' expressions.

A *cutter* knows which rows of a batch the compiled loops may cut, and how all others are
cut.  Tokens are defined by `re`, and the loops know what to do with any text.  Where the
user wrote expressions, they are defined by Polars: only rows in ASCII, whose lower case
and character classes leave no questions, go through the loops, and the query stays for
the rest.

Nothing here knows what is done with the pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import polars as pl

from millstream.columns.kernels import loading
from millstream.operators.frames.tokenize import ASCII_SIZE, AsciiClass, tokens
from millstream.plan.frames import Tokens, Transform
from millstream.plan.text_steps import text_splits

if TYPE_CHECKING:
    from millstream.operators.frames.tokenize import TokenClass
    from millstream.plan.logical import Node
    from millstream.plan.text_steps import TextLists

__all__ = ["Cutter", "ExpressionCutter", "TokenCutter", "cutter_of"]


class Cutter(Protocol):
    """How a run of nodes cuts a text column into pieces."""

    #: The column that is cut, and that of the pieces.
    column: str
    name: str
    #: What the compiled loops look for.
    kind: TokenClass | AsciiClass
    #: One character between pieces, which may then be empty; else the empty string.
    separator: str
    #: Whether a piece can be null.
    keeps_null: bool

    def pieces(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the pieces of a batch, one row each."""

    def parted(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame | None]:
        """Return the text that the loops may cut, and the pieces of the rest."""


def cutter_of(nodes: tuple[Node, ...]) -> Cutter | None:
    """Return how these nodes cut text, if that is all they do."""
    spec = nodes[0].spec
    if isinstance(spec, Tokens):
        return TokenCutter(spec) if len(nodes) == 1 else None
    splits = text_splits(nodes)
    if len(splits) != 1 or splits[0].nodes != nodes:
        return None
    return ExpressionCutter(splits[0].lists, nodes, keeps_null=splits[0].keeps_null)


class TokenCutter:
    """The verb `tokens`."""

    separator = ""
    keeps_null = False

    def __init__(self, spec: Tokens) -> None:
        self.column = self.name = spec.column
        self.kind: TokenClass | AsciiClass = spec.token_class

    def pieces(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the tokens of a batch."""
        return pl.DataFrame([tokens(rows[self.column], self.kind).alias(self.name)])

    def parted(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame | None]:
        """Return everything."""
        return rows[self.column], None


class ExpressionCutter:
    """`extract_all` or `split`, then `explode`, then perhaps a filter of nulls."""

    def __init__(
        self, lists: TextLists, nodes: tuple[Node, ...], *, keeps_null: bool
    ) -> None:
        self.column, self.name = lists.column, lists.name
        self.separator = lists.separator
        self.kind: TokenClass | AsciiClass = _ascii_class(lists)
        self.keeps_null = keeps_null
        self._functions = [
            node.spec.function for node in nodes if isinstance(node.spec, Transform)
        ]

    def pieces(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the pieces of a batch, by the loops if all of its text allows it."""
        text = rows[self.column]
        if self.separator or loading.ready("tokens") is None or not _is_plain(text):
            return self._queried(rows)
        return pl.DataFrame([tokens(text, self.kind).alias(self.name)])

    def parted(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame | None]:
        """Return the text in ASCII, and the pieces of other text and of none."""
        text = rows[self.column]
        if _is_plain(text):
            return text, None
        is_plain = (text.str.len_bytes() == text.str.len_chars()).fill_null(value=False)
        return text.filter(is_plain), self._queried(rows.filter(~is_plain))

    def _queried(self, rows: pl.DataFrame) -> pl.DataFrame:
        query = rows.lazy()
        for function in self._functions:
            query = function(query)
        result: pl.DataFrame = query.collect()
        return result


def _is_plain(text: pl.Series) -> bool:
    """Whether all text is in ASCII, and none is missing."""
    if text.null_count():
        return False
    return bool(text.str.len_bytes().sum() == text.str.len_chars().sum())


def _ascii_class(lists: TextLists) -> AsciiClass:
    """Ask Polars which ASCII characters pieces are made of, in lower case if wanted."""
    characters = pl.Series([chr(code) for code in range(ASCII_SIZE)])
    if lists.is_lower:
        characters = characters.str.to_lowercase()
    if lists.pattern is None:
        is_member = characters != lists.separator
    else:
        is_member = characters.str.extract_all(lists.pattern).list.len() > 0
    members = is_member.arg_true().to_list()
    return AsciiClass(frozenset(members), is_lower=lists.is_lower)
