"""The driver's side of all sources of a job: what they make stays with the job's state.

Says to each source where that is, and when it is to go on, to forget, or to give back.
What a source makes is known to the source alone.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from millstream.connectors.base import Source, Split
from millstream.errors import UsageError
from millstream.launch.boundary import asking
from millstream.plan.nodes import Read
from millstream.state.files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.launch.snapshot_context import SnapshotContext
    from millstream.plan.logical import Node
    from millstream.plan.stages import StagePlan
    from millstream.runtime.forgetting import Offsets
    from millstream.values import Row

__all__ = ["Inputs", "cut_source"]

_FOLDER = "staged"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The sources of one job by operator name."""

    context: SnapshotContext
    sources: dict[str, Source[Row]]

    @classmethod
    def of(cls, stages: StagePlan, context: SnapshotContext) -> Inputs:
        """Return the sources of a plan."""
        firsts = [stage.nodes[0] for stage in stages.stages]
        reads = {n.name: n.spec.source for n in firsts if isinstance(n.spec, Read)}
        return cls(context, reads)

    def keep(self) -> None:
        """Say to every source where what it makes must stay."""
        root = None if self.context.store is None else self.context.store.files
        for name, source in self.sources.items():
            if not self.context.claim:
                source.keep_in(None, "")
                continue
            place = quote(name, safe="")
            state = hashlib.sha256(str(root).encode()).hexdigest()[:12]
            below = None
            if isinstance(root, LocalFiles):
                below = str(Path(root.root) / _FOLDER / place)
            source.keep_in(below, f"{state}-{place}")

    def resume(self) -> None:
        """Let sources go on that had not come to their end before."""
        manifest = self.context.manifest
        if manifest is None:
            return
        live = self.sources.keys() - manifest.finished_operators
        for name, splits in self.context.splits().items():
            reached = manifest.offsets.get(name, {})
            is_done = all(reached.get(s.name, (0, False))[1] for s in splits)
            if name in live and splits and not is_done:
                with asking(name, "to go on with what it had made"):
                    self.sources[name].resume(splits)

    def forgetter(self) -> Callable[[Offsets], None] | None:
        """Return what lets sources forget, if one of them can."""
        can_forget = [
            type(s).forget is not Source.forget for s in self.sources.values()
        ]
        return self._forget if any(can_forget) else None

    def _forget(self, offsets: Offsets) -> None:
        for name, source in self.sources.items():
            source.forget(offsets.get(name, {}))

    def let_go(self, *, is_over: bool) -> None:
        """Let sources give back what they made, or all but what a later run needs."""
        for source in self.sources.values():
            if is_over or not self.context.claim:
                source.release()
            else:
                source.suspend()


def cut_source(node: Node, parts: int) -> tuple[Split, ...]:
    """Return the splits of a source, which must be fit for workers and snapshots."""
    assert isinstance(node.spec, Read)
    with asking(node.name, "for its splits", str(node.location)):
        made = tuple(node.spec.source.splits(parts))
    names: set[str] = set()
    for split in made:
        wrong = _wrong_about(split, names)
        if wrong:
            msg = f"the source {node.name!r} at {node.location} returned {wrong}"
            raise UsageError(msg)
        names.add(split.name)
    return made


def _wrong_about(split: object, names: set[str]) -> str:
    """Say what keeps a split from being used beside others of these names; or ""."""
    if not isinstance(split, Split):
        return f"{split!r} among its splits; return a list of Split"
    if split.name in names:
        return (
            f"two splits with the name {split.name!r}, by which snapshots know how far "
            "each was read; give each a name of its own"
        )
    try:
        pickle.dumps(split)
    except Exception as error:  # noqa: BLE001 - pickling may raise anything
        return (
            f"the split {split.name!r} with a payload that cannot be sent to workers "
            f"({error}); make it of plain data"
        )
    return ""
