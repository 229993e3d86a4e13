"""Play a scenario and say what went wrong, if anything."""

from __future__ import annotations

import shutil
import tempfile
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fuzz.catalogue import VERBS
from tests.fuzz.meaning import expected, size_of
from tests.fuzz.sink_verbs import (
    FILE_SINKS,
    directories_shared,
    found_in,
    problem_of,
    text_record,
)
from tests.fuzz.ticking import TickingClock
from tests.fuzz.writing import built
from tests.simulation.flows import Case
from tests.simulation.resizing import resized

import millstream as ms
from millstream.errors import SnapshotError
from millstream.testing import manual_time, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fuzz.programs import Program
    from tests.fuzz.scenarios import Leg, Scenario

__all__ = ["Stop", "play"]

_MEMORY = Path("/dev/shm")
_TIMEOUT_S = 60
"""A leg that takes longer hangs; most take a tenth of a second."""
TIGHT = {
    "local_channel_batches": 1,
    "restarts_max": 1,
    "combine_keys_max": 2,
    "buffer": ms.fixed(2),
}


SHARED = "two sinks share a directory and nobody says so"
ENDLESS = "it goes on for ever"
RECORDED: dict[str, Callable[[list[Any]], Any]] = {
    "write_text": lambda rows: [text_record(row) for row in rows],
    "write_jsonl": lambda rows: [tuple(row.values()) for row in rows],
    "write_parquet": list,
    "collect_frame": list,
}
"""What the simulator notes of sinks that it does not let write."""


class Stop(Exception):  # noqa: N818 - not always an error
    """A leg ended without results, which is a problem unless it should."""

    @property
    def problem(self) -> str:
        """What is wrong."""
        return str(self)


def play(scenario: Scenario) -> str:
    """Run all legs; return what is wrong, or nothing."""
    with _place() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", ms.UnboundedStateWarning)
        try:
            if scenario.launcher == "simulator":
                return _simulated(scenario, place)
            return _played(scenario, place)
        except Exception:  # noqa: BLE001 - what leaves the engine is not a bare error
            return traceback.format_exc()


def _played(scenario: Scenario, place: Path) -> str:
    is_complete = False
    for number, leg in enumerate(scenario.legs):
        if is_complete and leg.program != scenario.legs[number - 1].program:
            return ""
        try:
            found = _run(scenario, leg, place)
        except Stop as stop:
            return f"leg {number}: {stop.problem}" if stop.problem else ""
        if found is None:
            continue
        is_complete = True
        if problem := _judged(leg, found):
            return f"leg {number}: {problem}"
    return ""


@contextmanager
def _place() -> Iterator[Path]:
    place = tempfile.mkdtemp(dir=_MEMORY if _MEMORY.exists() else None)
    try:
        yield Path(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(scenario: Scenario, leg: Leg, place: Path) -> dict[str, Any] | None:
    """Run a leg; return what its sinks got, or None if it was stopped."""
    try:
        flow, handles = built(leg.program, place / "out")
    except ms.UsageError as error:
        is_right = directories_shared(leg.program)
        raise Stop("" if is_right else f"refused while building: {error}") from error
    if directories_shared(leg.program):
        raise Stop(SHARED)
    start = {"local": _run_local, "processes": _run_processes}[scenario.launcher]
    try:
        is_over = start(flow, leg, place)
    except SnapshotError as error:
        raise Stop("" if leg.may_refuse else f"refused: {error}") from error
    except ms.MillstreamError as error:
        raise Stop(_said(error)) from error
    return _found(leg.program, handles, place) if is_over else None


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _options(leg: Leg, place: Path) -> dict[str, Any]:
    return {
        "workers": leg.workers,
        "state": place / "state",
        "drop_state": leg.drops,
        "source_batch_rows": leg.batch_rows,
        "frame_buffer": ms.fixed(leg.batch_rows),
        **TIGHT,
    }


def _run_local(flow: ms.Flow, leg: Leg, place: Path) -> bool:
    wrong: list[str] = []
    beside = partial(_run_beside, leg, place, wrong) if leg.beside else None
    clock = TickingClock(leg.tick_ns, leg.stop, beside)
    with manual_time(clock):
        job = flow.start(snapshot_every="1ms", **_options(leg, place))
    clock.watch(job)
    try:
        if not job.wait(_TIMEOUT_S):
            job.cancel()
            raise Stop(ENDLESS)
    except ms.JobCancelledError:
        if clock.hangs or not clock.has_stopped:
            raise Stop(ENDLESS) from None
        return False
    finally:
        if wrong:
            raise Stop(wrong[0])
    return True


def _run_processes(flow: ms.Flow, leg: Leg, place: Path) -> bool:
    """Run in real processes; stop when there has been an epoch."""
    options = _options(leg, place)
    job = flow.start(on="processes", snapshot_every="5ms", **options)
    enough = job.epoch + leg.stop
    while leg.stop and job.epoch < enough and not job.wait(0.002):
        pass
    if leg.stop:
        job.cancel()
    try:
        if not job.wait(_TIMEOUT_S):
            job.cancel()
            raise Stop(ENDLESS)
    except ms.JobCancelledError:
        return False
    return True


def _run_beside(leg: Leg, place: Path, wrong: list[str]) -> None:
    """Start the program a second time while it runs."""
    other = place / f"beside {len(list(place.glob('beside*')))}"
    state = place if leg.beside == "same state" else other
    out = place if leg.beside == "same output" else other
    second = replace(leg, beside="", stop=0, workers=2, drops=False)
    has_files = any(step.verb in FILE_SINKS for step in leg.program.steps)
    is_apart = leg.beside == "apart" or (leg.beside == "same output" and not has_files)
    try:
        flow, handles = built(leg.program, out / "out")
        _run_local(flow, second, state)
    except ms.MillstreamError as error:
        if is_apart:
            wrong.append(f"beside it: {_said(error)}")
    except Stop as stop:
        wrong.append(f"beside it: {stop.problem}")
    else:
        if not is_apart:
            wrong.append(f"nobody says that another one has the {leg.beside}")
        elif problem := _judged(
            replace(leg, free=frozenset()), _found(leg.program, handles, out)
        ):
            wrong.append(f"beside it: {problem}")


def _found(program: Program, handles: dict[str, Any], place: Path) -> dict[str, Any]:
    return {
        step.name: found_in(step.verb, place / "out" / step.arguments[0])
        if step.verb in FILE_SINKS
        else handles[step.name].result()
        for step in program.steps
        if VERBS[step.verb].is_sink
    }


def _judged(leg: Leg, found: dict[str, Any]) -> str:
    """Compare what sinks got with what they should have got."""
    due = expected(leg.program)
    for name, got in found.items():
        step = leg.program.step(name)
        if name in leg.free:
            most = due[name] if isinstance(due[name], int) else size_of(due[name])
            count = got if isinstance(got, int) else size_of(got)
            problem = f"{count} rows of {most}" if count > most else ""
        else:
            problem = problem_of(step.verb, got, due[name], *step.arguments)
        if problem:
            return f"{name} ({step.verb}): {problem}"
    return ""


def _simulated(scenario: Scenario, place: Path) -> str:
    """Run with simulated crashes; files are not written but recorded.

    With more than one leg, drivers crash and go on with other numbers of workers.
    """
    leg = scenario.legs[0]
    if directories_shared(leg.program):
        return ""
    flow, _ = built(leg.program, place)
    names = {node.id: node.name for node in flow.plan.nodes}
    handles = {handle.name: handle for handle in flow.handles}
    sinks = [s for s in leg.program.steps if VERBS[s.verb].is_sink]

    def check(rows: dict[str, list[Any]]) -> None:
        found = {}
        for sink in sinks:
            handle = handles.get(sink.name)
            name = sink.name if handle is None else names[handle._node_id]
            shape = RECORDED.get(sink.verb) or handles[sink.name]._shape
            found[sink.name] = shape(rows.get(name, []))
        problem = _judged(leg, found)
        assert not problem, problem

    if len(scenario.legs) > 1:
        return "; ".join(resized(Case(flow, check), [scenario.seed]))
    report = simulate(
        flow, seed=scenario.seed, snapshots=True, check=check, on_failure="report"
    )
    return "; ".join(p for outcome in report.failures for p in outcome.problems)
