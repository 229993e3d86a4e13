"""Rows of a frame whose key was not seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from millstream.columns.index import KeyIndex
from millstream.operators.base import OneInputOperator
from millstream.operators.frames.keyed_state import FrameState
from millstream.plan.frames import UniqueFrame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from millstream.plan.logical import Node
    from millstream.state.settings import StateSettings

__all__ = ["FrameDistinctOperator", "SeenKeys"]


class FrameDistinctOperator(OneInputOperator):
    """The first row of every key, as soon as it comes; remembers all keys."""

    def __init__(self, nodes: tuple[Node, ...], settings: StateSettings | None) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, UniqueFrame)
        self._seen = SeenKeys(spec.keys)
        self._frame_state: FrameState | None = None
        if settings is not None:
            state = FrameState(self._seen, spec.keys, settings.shard_count)
            self.state = self._frame_state = state

    def process(self, rows: Any) -> Any:
        firsts = rows.unique(self._seen.keys, keep="first", maintain_order=True)
        return firsts.filter(pl.Series(self._seen.add(firsts)))

    def reset(self) -> None:
        """Forget all keys."""
        self._seen = SeenKeys(self._seen.keys)
        if self._frame_state is not None:
            self._frame_state.begin_anew(self._seen)

    def reset_after_flush(self) -> None:
        """Keep all keys: what comes round again was seen."""


class SeenKeys:
    """Keys in the order in which they came; none is ever touched again."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self._index: KeyIndex | None = None
        #: How many keys there were when an epoch began.
        self._counts: dict[int, int] = {}

    def add(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Take the keys of rows in which none is twice; tell which are new."""
        if self._index is None:
            self._index = KeyIndex({key: rows.schema[key] for key in self.keys})
        known = len(self._index)
        is_new: NDArray[np.bool_] = self._index.slots(rows) >= known
        return is_new

    def begin_epoch(self, epoch: int) -> None:
        """Count keys from now on as touched in this epoch."""
        self._counts[epoch] = 0 if self._index is None else len(self._index)

    def delta(self, since: int) -> pl.DataFrame:
        """Return the keys that came after epoch `since`."""
        if self._index is None:
            return pl.DataFrame()
        first = self._counts[since + 1] if since else 0
        self._counts = {e: n for e, n in self._counts.items() if e > since}
        return self._index.keys(np.arange(first, len(self._index)))

    def restore(self, deltas: Iterable[pl.DataFrame]) -> None:
        """Take keys that came before."""
        for frame in deltas:
            if not frame.is_empty():
                self.add(frame)
