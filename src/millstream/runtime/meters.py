"""What is measured of a task when its worker reports: a look, and nothing per row.

The task counts rows and time as it goes; channels count bytes; everything else is looked up
here, in time that grows with the channels of the task and with what waits in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Sealed
from millstream.protocol.metrics import OutputMetrics, RoundMetrics, TaskMetrics
from millstream.protocol.watermark import BEGINNING
from millstream.runtime.channels import RemoteCarrier
from millstream.state.table_and_time import TableAndTime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.rounds import RoundsSoFar
    from millstream.runtime.channels import OutputChannel
    from millstream.runtime.sealing import Report
    from millstream.runtime.task import Task
    from millstream.state.base import State

__all__ = ["SPLITS_MAX", "measured", "note_stored"]

SPLITS_MAX = 16
"""Splits of a task that are reported; the slowest ones hold time back."""


def measured(task: Task, now_ns: int) -> TaskMetrics:
    """Return what a task has done, and how it stands."""
    # A reader that has taken the end gives no credit back.
    channels, intake, time = task.outputs.channels, task.intake, task.time
    open_channels = [] if task.has_ended else channels
    batches, rows = intake.waiting()
    progress = time.progress()
    late, ahead, reached = (0, 0, BEGINNING) if progress is None else progress
    return TaskMetrics(
        task.stage.id,
        task.index,
        rows_in=task.chain.rows_in,
        rows_out=task.chain.rows_out,
        bytes_in=intake.bytes_taken,
        bytes_out=sum(_bytes_sent(channel) for channel in channels),
        busy_ns=task.occupancy.busy_ns,
        blocked_ns=task.occupancy.blocked_ns(now_ns),
        late_rows=late,
        ahead_rows=ahead,
        batches_waiting=batches,
        rows_waiting=rows,
        outputs=_outputs(open_channels),
        has_time=progress is not None,
        watermark=None if reached == BEGINNING else reached,
        splits=_slowest(time.splits(intake)),
        state_entries=sum(map(_entries, task.states().values())),
        state_bytes=task.state_bytes,
        rounds=_rounds(task.rounds),
    )


def note_stored(tasks: Iterable[Task], report: Report) -> None:
    """Let the task know of which state was stored how much its snapshot wrote."""
    if isinstance(report, Sealed) and report.file is not None:
        own = (report.stage, report.task)
        for task in tasks:
            if (task.stage.id, task.index) == own:
                task.state_bytes = report.file[1]


def _bytes_sent(channel: OutputChannel) -> int:
    carrier = channel.carrier
    return carrier.bytes_sent if isinstance(carrier, RemoteCarrier) else 0


def _outputs(channels: list[OutputChannel]) -> tuple[OutputMetrics, ...]:
    """Return how channels stand, those to one stage together."""
    found: dict[int, list[int]] = {}
    for channel in channels:
        sums = found.setdefault(channel.channel.edge.target, [0] * 5)
        used, most = channel.carrier.credit
        place = 3 if isinstance(channel.carrier, RemoteCarrier) else 1
        sums[0] += channel.rows_waiting
        sums[place] += used
        sums[place + 1] += most
    return tuple(OutputMetrics(stage, *sums) for stage, sums in found.items())


def _slowest(splits: dict[str, int]) -> tuple[tuple[str, int], ...]:
    told = sorted(splits.items(), key=lambda split: split[1])
    return tuple(told[:SPLITS_MAX])


def _entries(state: State | None) -> int:
    """Return how many keys a table has; none of other states, which have no keys."""
    if isinstance(state, TableAndTime):
        state = state.table
    items = getattr(state, "items", None)
    return len(items()) if items is not None and hasattr(state, "touch") else 0


def _rounds(rounds: RoundsSoFar | None) -> RoundMetrics | None:
    if rounds is None:
        return None
    return RoundMetrics(rounds.round, rounds.done, tuple(rounds.history))
