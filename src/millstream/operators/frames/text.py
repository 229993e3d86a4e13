"""Text columns as pieces, and pieces counted without being made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.base import OneInputOperator
from millstream.operators.frames.aggregation import FrameCombineOperator, FrameCombiner
from millstream.operators.frames.text_split import cutter_of
from millstream.operators.frames.token_counts import (
    TokenCounts,
    is_countable,
    ready_kernels,
)
from millstream.operators.frames.tokenize import located_tokens
from millstream.plan.frame_windows import HIDDEN
from millstream.plan.frames import CombineFrame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.columns.partials import ScalarPartial
    from millstream.columns.table import FrameAggregation
    from millstream.config import Config
    from millstream.operators.frames.text_split import Cutter
    from millstream.plan.logical import Node
    from millstream.ports import Clock

__all__ = ["CountTokensOperator", "SplitTextOperator", "can_count_pieces"]

_FINISH_ROWS = 65_536


class SplitTextOperator(OneInputOperator):
    """The pieces of one column, one row each."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        self._cutter = _cutter(nodes)
        self._is_timed = nodes[0].takes_times

    def process(self, rows: Any) -> Any:
        if self._is_timed:
            found = located_tokens(rows[self._cutter.column], self._cutter.kind)
            times = rows.select(HIDDEN)[found.rows]
            return times.select(found.tokens.alias(self._cutter.name), *HIDDEN)
        return self._cutter.pieces(rows)


def _cutter(nodes: tuple[Node, ...]) -> Cutter:
    cutter = cutter_of(nodes)
    assert cutter is not None, "the planner made a run of other nodes"
    return cutter


def can_count_pieces(nodes: tuple[Node, ...], combine: CombineFrame) -> bool:
    """Whether all that a combiner keeps of the pieces is how often each occurs."""
    cutter = cutter_of(nodes)
    if cutter is None:
        return False
    aggregation: FrameAggregation = combine.aggregation
    return (
        aggregation.keys == (cutter.name,)
        and not aggregation.longs
        and all(_is_count(part, cutter) for part in aggregation.columns)
        and is_countable(cutter.kind)
    )


def _is_count(part: ScalarPartial, cutter: Cutter) -> bool:
    """Whether a row with a piece adds 1."""
    counts = (
        pl.repeat(1, pl.len(), dtype=pl.Int64),
        pl.col(cutter.name).is_not_null().cast(pl.Int64),
    )
    if part.fold is None or part.fold.how != "add":
        return False
    return all(
        any(term.meta.eq(count.alias(name)) for count in counts)
        for name, term in zip(part.names, part.fold.terms, strict=True)
    )


class CountTokensOperator(FrameCombiner):
    """Cuts text and combines equal pieces in one step, once that is compiled."""

    def __init__(self, nodes: tuple[Node, ...], config: Config, clock: Clock) -> None:
        super().__init__(nodes, config, clock)
        combine = nodes[-1].spec
        assert isinstance(combine, CombineFrame)
        parts: tuple[ScalarPartial, ...] = combine.aggregation.columns
        self._names = [name for part in parts for name in part.names]
        self._keys_max = config.combine_keys_max
        self._cutter = _cutter(nodes[:-1])
        self._combined = FrameCombineOperator(nodes[-1:], config, clock)
        self._counts: TokenCounts | None = None

    def process(self, rows: Any) -> Any:
        cutter, kernels = self._cutter, ready_kernels()
        self.note_held()
        if kernels is None:
            return self._combine(cutter.pieces(rows))
        if self._counts is None:
            self._counts = TokenCounts(cutter.kind, kernels, cutter.separator)
        text, others = cutter.parted(rows)
        self._counts.add(text)
        if len(self._counts) >= self._keys_max:
            return self.flush() if others is None else self._joined(others)
        return [] if others is None else self._combine(others)

    def _combine(self, pieces: pl.DataFrame) -> Any:
        return self._combined.process(pieces) if len(pieces) > 0 else []

    def _joined(self, pieces: pl.DataFrame) -> Any:
        """Take pieces and give up all that is held."""
        sent = self._combine(pieces)
        held = self.flush()
        parts = [part for part in (sent, held) if len(part) > 0]
        return pl.concat(parts) if parts else []

    def flush(self) -> Any:
        parts = list(self._held())
        return pl.concat(parts) if parts else []

    def finish(self) -> Iterator[Any]:
        for parts in self._held():
            yield from parts.iter_slices(_FINISH_ROWS)

    def _held(self) -> Iterator[pl.DataFrame]:
        """Give up all that is held, in the form that the combiner gives it."""
        before = self._combined.flush()
        if len(before) > 0:
            yield before
        if self._counts is None or len(self._counts) == 0:
            return
        counted, self._counts = self._counts.counted(), None
        numbers = pl.Series(counted.counts)
        columns = [numbers.alias(name) for name in self._names]
        yield pl.DataFrame([counted.tokens.alias(self._cutter.name), *columns])
