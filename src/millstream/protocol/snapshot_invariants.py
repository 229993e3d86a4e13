"""What must hold of a `SnapshotCore` after every event, whatever has happened.

Called by `SnapshotCore.validate`, that is by tests and simulations; a running job does not
come here.  It looks inside the core, so that the core need not show itself to anybody else.
"""
# ruff: noqa: SLF001 - see above

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.snapshots import _COMMIT_TRIES_MAX, _PATIENCE_MAX, Phase

if TYPE_CHECKING:
    from millstream.protocol.snapshots import SnapshotCore

__all__ = ["check_snapshots"]

_KEEPING = frozenset({Phase.STORING, Phase.COMMITTING})
_LEAVING = _KEEPING | {Phase.RESTING, Phase.SEARCHING}
_PAUSING = _KEEPING | {Phase.OPEN, Phase.PAUSED, Phase.CONCLUDED}


def check_snapshots(core: SnapshotCore) -> None:
    """Assert the invariants in the docstring of `millstream.protocol.snapshots`."""
    _check_epochs(core)
    _check_phase(core)
    if core._is_interrupted:
        _check_left(core)
    else:
        _check_reports(core)


def _check_epochs(core: SnapshotCore) -> None:
    complete, last = core.complete_epoch, core._last_used
    assert 0 <= complete <= last, f"epoch {complete} is complete, {last} was the last"
    assert core._base_epoch in {0, complete}, (
        f"deltas build on epoch {core._base_epoch}, and {complete} is complete"
    )
    if core._barrier is not None:
        barrier = core._barrier
        assert barrier.epoch == last, f"epoch {barrier.epoch} is open after {last}"
        assert barrier.since == core._base_epoch, (
            f"epoch {barrier.epoch} builds on {barrier.since}, not {core._base_epoch}"
        )
    if core._storing is not None:
        epoch = core._storing.epoch
        is_complete = core.phase is Phase.COMMITTING
        assert (epoch == complete) if is_complete else (complete < epoch <= last), (
            f"epoch {epoch} is {core.phase.name} after {complete}, of {last}"
        )


def _check_phase(core: SnapshotCore) -> None:
    phase = core.phase
    assert (core._barrier is not None) == (phase is Phase.OPEN), (
        f"a barrier goes round while an epoch is open, not while it is {phase.name}"
    )
    assert (core._storing is not None) == (phase in _KEEPING), (
        f"an epoch is kept until it is committed, not while it is {phase.name}"
    )
    assert not core._is_pausing or phase in _PAUSING, (
        f"tasks stand still behind an epoch, and it is {phase.name}"
    )
    assert core._is_pausing or phase is not Phase.PAUSED, "nobody stands still"
    assert core._is_stop_wanted or not core._is_stopped, "it stopped by itself"
    assert not (core._is_stopped and phase is Phase.OPEN), (
        f"epoch {core._last_used} is open, and the job has stopped"
    )
    assert 1 <= core._patience <= _PATIENCE_MAX, f"patience is {core._patience}"
    assert core._commit_tries <= _COMMIT_TRIES_MAX, f"{core._commit_tries} tries"


def _check_left(core: SnapshotCore) -> None:
    """Assert that nothing is kept of a generation that is over, and nothing begun."""
    assert core.phase in _LEAVING, f"an interrupted job is {core.phase.name}"
    kept = (core._sealed, core._ended, core._tasks)
    assert not any(kept), f"something is left of a generation that is over: {kept}"


def _check_reports(core: SnapshotCore) -> None:
    tasks, generation = core._tasks, core._generation
    for report in core._sealed:
        own = (report.stage, report.task, report.epoch)
        assert report.generation == generation, (
            f"{own} was sealed in generation {report.generation}, not {generation}"
        )
        assert own[:2] in tasks, f"{own} was sealed by a task that nobody waits for"
        assert report.epoch <= core._last_used, f"{own} was sealed and never opened"
    sealed = [(report.stage, report.task, report.epoch) for report in core._sealed]
    assert len(set(sealed)) == len(sealed), f"a task sealed an epoch twice: {sealed}"
    assert core.ended_tasks <= core._ended.keys() <= tasks, (
        f"of {sorted(tasks)}, {sorted(core._ended)} have ended"
    )
    for task, epoch in core._newest.items():
        assert core._spent < epoch <= core._last_used, (
            f"task {task} has sealed epoch {epoch} of {core._spent + 1} to "
            f"{core._last_used}"
        )
    assert core._began <= core.complete_epoch, (
        f"the generation began at epoch {core._began}, behind {core.complete_epoch}"
    )
    if core.phase is Phase.CONCLUDED:
        assert core._ended.keys() == tasks, f"not all of {sorted(tasks)} have ended"
