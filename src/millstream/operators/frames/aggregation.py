"""Aggregates of frames by key, and the combiners in front of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.columns.compiled_table import StateTable
from millstream.operators.base import OneInputOperator, TickingOperator
from millstream.operators.frames.keyed_state import FrameState
from millstream.plan.frames import AggregateFrame, CombineFrame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.columns.table import FrameAggregation
    from millstream.config import Config
    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.settings import StateSettings

__all__ = ["FrameAggregateOperator", "FrameCombineOperator", "FrameCombiner"]

_FINISH_ROWS = 65_536


class FrameCombiner(OneInputOperator, TickingOperator):
    """What combiners have in common that may be waited for: they do not hold for long."""

    def __init__(self, nodes: tuple[Node, ...], config: Config, clock: Clock) -> None:
        super().__init__(nodes)
        spec = nodes[-1].spec
        assert isinstance(spec, CombineFrame)
        self._clock = clock
        self._held_ms = config.combine_held_ms if spec.has_latency_bound else None

    def note_held(self) -> None:
        """Ask to be called in time, if somebody waits for what is held."""
        if self._held_ms is not None and self.tick_at_ms is None:
            self.tick_at_ms = self._clock.wall_ms() + self._held_ms

    def tick(self, now_ms: int) -> Iterator[Any]:  # noqa: ARG002 - it is time
        """Send on what is held."""
        self.tick_at_ms = None
        held: Any = self.flush()
        if len(held) > 0:
            yield from held.iter_slices(_FINISH_ROWS)


class FrameCombineOperator(FrameCombiner):
    """Keeps parts by key and sends them on before a cut or when it is full."""

    def __init__(self, nodes: tuple[Node, ...], config: Config, clock: Clock) -> None:
        super().__init__(nodes, config, clock)
        spec = nodes[-1].spec
        assert isinstance(spec, CombineFrame)
        self._aggregation: FrameAggregation = spec.aggregation
        self._keys_max = config.combine_keys_max
        self._table = StateTable(self._aggregation, self._keys_max)

    def process(self, rows: Any) -> Any:
        self._table.add_rows(rows)
        self.note_held()
        return self.flush() if self._table.merged_rows >= self._keys_max else []

    def flush(self) -> Any:
        parts = self._table.merged()
        self._table = StateTable(self._aggregation, self._keys_max)
        return [] if parts is None else parts

    def finish(self) -> Iterable[Any]:
        parts = self._table.merged()
        return () if parts is None else parts.iter_slices(_FINISH_ROWS)

    def reset(self) -> None:
        """Forget all parts."""
        self._table = StateTable(self._aggregation, self._keys_max)


class FrameAggregateOperator(OneInputOperator):
    """One row per key when the input ends."""

    def __init__(
        self, nodes: tuple[Node, ...], settings: StateSettings | None = None
    ) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, AggregateFrame)
        self._is_combined = spec.is_combined
        #: Everything it knows; a combiner is empty at every cut, so this is all there is.
        self.table = StateTable(spec.aggregation)
        self._aggregation: FrameAggregation = spec.aggregation
        self._frame_state: FrameState | None = None
        if settings is not None:
            keys, count = spec.aggregation.keys, settings.shard_count
            self.state = self._frame_state = FrameState(self.table, keys, count)

    def process(self, rows: Any) -> Any:
        if self._is_combined:
            self.table.add(rows)
        else:
            self.table.add_rows(rows)
        return []

    def finish(self) -> Iterator[Any]:
        result = self.table.finished()
        if result is not None:
            yield from result.iter_slices(_FINISH_ROWS)

    def reset(self) -> None:
        """Forget all keys."""
        self.table = StateTable(self._aggregation)
        if self._frame_state is not None:
            self._frame_state.begin_anew(self.table)
