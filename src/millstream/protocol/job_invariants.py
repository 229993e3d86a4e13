"""What must hold of a `JobCore` after every event, whatever has happened.

Called by `JobCore.validate`, that is by tests and simulations; a running job does not come
here.  It looks inside the core, so that the core need not show itself to anybody else.
"""
# ruff: noqa: SLF001 - see above

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.job import Phase

if TYPE_CHECKING:
    from millstream.protocol.job import JobCore

__all__ = ["check_job"]

_DEPLOYED = frozenset({Phase.CONNECTING, Phase.RUNNING})
_OVER = frozenset({Phase.STOPPING, Phase.ENDED})


def check_job(core: JobCore) -> None:
    """Assert the invariants in the docstring of `millstream.protocol.job`."""
    phase, outcome = core.phase, core.outcome
    assert (outcome is not None) == (phase in _OVER), (
        f"a job has an outcome when it is over, not {outcome} while it is {phase.name}"
    )
    _check_workers(core)
    can_recover = core._can_recover and outcome is None
    core._absences.validate(core.members, can_recover=can_recover)
    if core._restarts is not None:
        core._restarts.validate()
    if phase in _DEPLOYED:
        _check_placement(core)
    placed = {worker: core._members.get(worker) for worker in core.placement}
    if phase in {Phase.RUNNING, Phase.COMMITTING}:
        late = [w for w, member in placed.items() if not (member and member.is_ready)]
        assert not late, f"the job is {phase.name}, and workers {late} are not ready"
        assert not core._is_recovering, f"a job that is {phase.name} has recovered"
    if phase is Phase.COMMITTING:
        busy = [w for w, m in placed.items() if not (m and m.is_finished)]
        assert not busy, f"output is committed, and workers {busy} have not finished"


def _check_workers(core: JobCore) -> None:
    expected, members = core._expected, core._members
    assert sorted(set(expected)) == expected, (
        f"every worker has an id that nobody had before, not {expected}"
    )
    strangers = members.keys() - set(expected)
    assert not strangers, f"workers {strangers} are members, and were never asked for"
    for worker, member in members.items():
        assert member.is_ready or not member.is_finished, (
            f"worker {worker} has finished and was never ready"
        )
    if core._can_recover and core.outcome is None:
        left = {worker for worker, member in members.items() if member.is_gone}
        there = [w for w in expected if w not in left and w not in core._exited]
        is_committing = core.phase is Phase.COMMITTING
        assert len(there) == core._task_count or is_committing, (
            f"workers {there} are there or on their way, for {core._task_count} tasks"
        )


def _check_placement(core: JobCore) -> None:
    placement, count = core.placement, core._task_count
    assert len(placement) == count, (
        f"{len(placement)} of {count} task indexes are placed"
    )
    assert core._snapshot is not None, (
        f"generation {core.generation} is deployed from no snapshot"
    )
    hosts = set(core.members if core._can_recover else core._members)
    strangers = set(placement) - hosts
    assert not strangers, f"tasks are placed on {strangers}, who are not there"
    loads = [placement.count(worker) for worker in set(placement)]
    assert max(loads) - min(loads) <= 1, f"tasks are not spread evenly: {placement}"
