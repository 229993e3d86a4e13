"""Jobs that go on with another number of workers, again and again, wherever they were cut.

The driver dies soon after some epochs, or is asked to stop, and the next one has another
number of workers.  The mutation tests undo a decision and name a seed that finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.frame_join_flows import clock_joined_frames, window_joined_frames
from tests.simulation.frame_window_flows import (
    frames_by_the_clock,
    late_frames,
    triggered_frames,
)
from tests.simulation.join_flows import clock_joined, window_joined
from tests.simulation.loop_flows import LOOP_CASES, components, cycled, enough
from tests.simulation.recovery_flows import CASES, counted, in_order
from tests.simulation.resizing import Resizing, resized
from tests.simulation.stopping import Stopping
from tests.simulation.window_flows import (
    late_rows,
    sliding_windows,
    triggered_windows,
    windows_by_the_clock,
)
from tests.support.examples import few_flows, few_seeds, fresh_seeds, is_exhaustive

from millstream.plan import stages
from millstream.plan.ended import Remains
from millstream.protocol.rounds import Head, HeadPhase
from millstream.runtime import restoring
from millstream.runtime.restoring import Restoration
from millstream.runtime.stopping import Stops
from millstream.state import table_and_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.flows import Case

    from millstream.state.base import Segment

# Where the order of results matters it is the order of tasks, of which there are others.
RESIZED = (
    *LOOP_CASES,
    *(make for make in CASES if make is not in_order),
    late_rows,
    sliding_windows,
    triggered_windows,
    windows_by_the_clock,
    window_joined,
    clock_joined,
    late_frames,
    frames_by_the_clock,
    window_joined_frames,
    clock_joined_frames,
    triggered_frames,
)
FEW_SEEDS = 3
MANY_SECONDS = 4.0 if is_exhaustive() else 1.0


def name_of(value: Any) -> str:
    return str(value.__name__)


@pytest.mark.parametrize("make", few_flows(RESIZED), ids=name_of)
def test_job_goes_on_at_any_width(make: Callable[[], Case]) -> None:
    """Rows, rounds, limits and results are those of a job that was left alone."""
    assert resized(make(), few_seeds(FEW_SEEDS)) == []


@pytest.mark.parametrize("make", [counted, components, cycled, enough], ids=name_of)
def test_job_is_stopped_and_goes_on_at_any_width(make: Callable[[], Case]) -> None:
    """Nothing is committed behind the epoch it stopped at, and nothing is missing."""
    assert resized(make(), few_seeds(FEW_SEEDS), Stopping) == []


@pytest.mark.slow
@pytest.mark.parametrize("cluster_class", [Resizing, Stopping], ids=name_of)
@pytest.mark.parametrize("make", RESIZED, ids=name_of)
def test_job_goes_on_at_any_width_in_many_seeds(
    make: Callable[[], Case], cluster_class: type[Resizing]
) -> None:
    """The same, with seeds that another day does not try."""
    assert resized(make(), fresh_seeds(MANY_SECONDS), cluster_class) == []


def _waits_before_its_input_has_ended(head: Head, decided: int, begun: int) -> None:
    head.decided, head.begun = decided, begun
    head.phase = HeadPhase.WAITING


def _is_told_to_its_own_task(
    restoration: Restoration, segment: Segment, index: int
) -> bool:
    return segment.task % restoration._task_count == index


def _forgets_what_has_ended(*_: Any) -> Remains:
    return Remains(frozenset(), frozenset(), {})


def _takes_over_at(time_of: Callable[[Iterable[int]], int]) -> Any:
    """Return what takes over all former tasks as if they had come to the same time."""

    def take_over(
        former: Iterable[tuple[int, Any]],
        catch_up: Callable[[int], None],
        take: Callable[[list[Any]], None],
    ) -> None:
        times, parts = zip(*former, strict=True)
        catch_up(time_of(times))
        take(list(parts))

    return take_over


undone = Stops.copied

MUTANTS: dict[str, tuple[Any, ...]] = {
    "a head waits though its input has not ended": (
        components, Resizing, Head, "resume", _waits_before_its_input_has_ended,
    ),
    "what has ended is forgotten": (
        cycled, Resizing, restoring, "remains_of", _forgets_what_has_ended,
    ),
    "rows that others read too are of no split": (
        triggered_windows, Resizing, stages, "with_splits", lambda _, edges: edges,
    ),
    "a new task does not know how late it is": (
        sliding_windows, Resizing, Restoration, "_is_for", _is_told_to_its_own_task,
    ),
    "what slower tasks had not told is forgotten": (
        windows_by_the_clock, Resizing, table_and_time, "take_over",
        _takes_over_at(max),
    ),
    "what quicker tasks had told is told again": (
        windows_by_the_clock, Resizing, table_and_time, "take_over",
        _takes_over_at(min),
    ),
    "a stop whose savepoint failed ends the job": (
        counted, Stopping, Stops, "copied",
        lambda stops, **_: undone(stops, is_there=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds above would find it if somebody made it."""
    make, cluster_class, owner, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, mutant)

    assert any(resized(make(), [seed], cluster_class) for seed in range(20))
