"""Text columns as tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.base import Operator
from millstream.operators.tokenize import tokens
from millstream.plan.frames import Tokens

if TYPE_CHECKING:
    from millstream.plan.nodes import Node

__all__ = ["Tokenized"]


class Tokenized(Operator):
    """The tokens of one column, one row each."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, Tokens)
        self._column = spec.column
        self._class = spec.token_class

    def process(self, rows: Any, port: int) -> Any:  # noqa: ARG002 - one input
        found = tokens(rows[self._column], self._class)
        return pl.DataFrame([found.alias(self._column)])
