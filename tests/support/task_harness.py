"""One task with a source in front of it and a readable channel behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.making import channel, nodes, taken_batches

from millstream.config import Config, configured, fixed
from millstream.connectors.iterable import IterableSource
from millstream.operators.build import TaskContext, build_chain
from millstream.plan import nodes as specs
from millstream.plan.stages import Stage
from millstream.runtime.channels import InputChannel, LocalCarrier, OutputChannel
from millstream.runtime.router import Router
from millstream.runtime.source_intake import SourceIntake
from millstream.runtime.task import Task, TaskPhase
from millstream.testing import ManualClock, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.connectors.base import Source
    from millstream.plan.spec import Spec
    from millstream.runtime.observer import Observer
    from millstream.runtime.task_cut import TaskCut
    from millstream.state.settings import StateSettings


__all__ = ["TaskHarness"]


class TaskHarness:
    """One task with a source in front of it and a readable channel behind it."""

    def __init__(
        self,
        rows: Iterable[Any] | Source[Any],
        verbs: Sequence[Spec],
        *,
        buffer_rows: int = 1,
        credit: int = 100,
        slice_batches: int = 2,
        batch_rows: int = 2,
        offsets: dict[str, int | None] | None = None,
        settings: StateSettings | None = None,
        carries_splits: bool = False,
        observer: Observer | None = None,
    ) -> None:
        source = (
            rows if isinstance(rows, ScriptedSource) else IterableSource(lambda: rows)  # type: ignore[arg-type, return-value]
        )
        config = configured(Config(), {"source_batch_rows": batch_rows})
        made = channel(buffer=fixed(buffer_rows), carries_splits=carries_splits)
        self.reader = InputChannel(made)
        self.writer = OutputChannel(
            made, LocalCarrier(self.reader, credit), lambda *_: None
        )
        self.reader.tell_closed = self.writer.close
        self.emitted: list[Any] = []
        self.cuts: list[TaskCut] = []
        self.ends: list[TaskCut] = []
        self.clock = ManualClock()
        context = TaskContext(
            "job",
            0,
            config,
            lambda _, rows: self.emitted.extend(rows),
            settings,
            clock=self.clock,
        )
        chain = nodes([specs.Read(source), *verbs])
        is_sink = chain[-1].is_sink
        self.task = Task(
            Stage(0, chain, None),
            0,
            SourceIntake("read", source, source.splits(1), config, offsets or {}),
            build_chain(chain, context),
            [[] if is_sink else [Router([self.writer])]],
            clock=self.clock,
            slice_batches=slice_batches,
            on_cut=self.cuts.append,
            on_end=self.ends.append,
            observer=observer,
        )

    def run(self, **how: bool) -> bool:
        return self.task.run(self.clock.monotonic_ns(), **how)

    def phase(self) -> TaskPhase:
        return self.task.phase

    def run_to_the_end(self, turns: int = 100) -> list[Any]:
        self.run_out(turns)
        return self.arrived()

    def run_out(self, turns: int = 100) -> None:
        for _ in range(turns):
            self.run()
        assert self.phase() is TaskPhase.ENDED

    def arrived(self) -> list[Any]:
        return [row for batch in taken_batches(self.reader) for row in batch]

    def elements(self) -> list[Any]:
        return [self.reader.take() for _ in range(len(self.reader))]
