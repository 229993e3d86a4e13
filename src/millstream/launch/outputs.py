"""The driver's side of what a job writes to: claimed, prepared, committed, given up."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.launch.boundary import asking
from millstream.plan.nodes import Write
from millstream.state.plain import decode

if TYPE_CHECKING:
    from millstream.connectors.base import Sink
    from millstream.launch.snapshot_context import SnapshotContext
    from millstream.plan.stages import StagePlan
    from millstream.state.manifest import Transaction
    from millstream.values import Row

__all__ = ["Sinks", "named_sinks"]


@dataclass(frozen=True, slots=True)
class Sinks:
    """The driver's side of all connectors that a job writes to, by operator name."""

    context: SnapshotContext
    sinks: dict[str, Sink[Row]]

    def prepare(self, *, is_complete: bool) -> None:
        """Make the destinations; what an earlier run had sealed is committed first."""
        context, manifest = self.context, self.context.manifest
        is_resumed = manifest is not None
        with ExitStack() as undo:
            for name, sink in self.sinks.items():
                with asking(name, "to claim its destination"):
                    leave = sink.claim(
                        context.job,
                        state=context.owner,
                        is_resumed=is_resumed,
                        key=context.output_key,
                    )
                if leave is not None:
                    context.held.callback(leave)
                if not is_resumed:
                    undo.callback(sink.abort, context.job)
            for name, sink in self.sinks.items():
                with asking(name, "to prepare its output"):
                    sink.prepare(context.job, is_resumed=is_resumed)
            undo.pop_all()
        if manifest is not None and context.claim:
            self.commit(manifest.epoch, manifest.transactions, is_last=is_complete)

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        """Make what was sealed up to an epoch visible; safe to repeat."""
        for name, sink in self.sinks.items():
            with asking(name, f"to commit epoch {epoch}"):
                own = [decode(t) for n, _, t in transactions if n == name]
                sink.commit(self.context.job, epoch, own)
                if is_last:
                    sink.complete(self.context.job)

    def abort(self) -> None:
        """Remove what was not committed, unless the job can be gone on with."""
        if not self.context.claim:
            for sink in self.sinks.values():
                sink.abort(self.context.job)


def named_sinks(stages: StagePlan) -> dict[str, Sink[Row]]:
    """Return the connectors that a flow writes to, by operator name."""
    nodes = [node for stage in stages.stages for node in stage.nodes]
    return {n.name: n.spec.sink for n in nodes if isinstance(n.spec, Write)}
