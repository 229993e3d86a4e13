"""Workers that are killed in the middle of loops: the rows are right, and few come again.

Method: functions of the body note in a file what they do.  When the first notes are in a
complete snapshot a worker is killed; whatever went back to the beginning would note the
same again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.spark.driving import eventually

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

COUNT = 24
ROUNDS = 150
EARLY = 10
"""Notes that must not be made twice."""

Made = tuple[ms.Flow, "ms.ResultHandle[Any]"]


@dataclass(frozen=True, slots=True)
class Notes:
    """What functions in other processes wrote down, a number per line."""

    path: Path

    def add(self, number: int) -> None:
        """Write a number down, and take some time, unless there is a hurry."""
        with self.path.open("a") as file:
            file.write(f"{number}\n")
        self.linger()

    def linger(self) -> None:
        """Wait a moment, so that somebody can step in."""
        if not self._hurry.exists():
            threading.Event().wait(0.02)

    def hurry(self) -> None:
        """Wait nowhere any more."""
        self._hurry.touch()

    def numbers(self) -> list[int]:
        """Return all that is there."""
        return [int(line) for line in self.path.read_text().split()]

    @property
    def _hurry(self) -> Path:
        return self.path.with_suffix(".hurry")


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    path = tmp_path / "notes"
    path.touch()
    return Notes(path)


def spread(rank: int, size: int) -> range:
    return range(rank, COUNT, size)


def cycled(notes: Notes) -> Made:
    """Keep a state of two: the number of the round, and a sum over all rows."""

    def update(state: tuple[int, int], rows: list[int]) -> tuple[int, int]:
        notes.add(state[0])
        return state[0] + 1, state[1] + sum(rows)

    def body(rows: Any, state: ms.RoundState[tuple[int, int]]) -> Any:
        return rows.shuffle().map(lambda i: (i * 7 + state.value[1]) % 11)

    flow = ms.Flow("cycled")
    rows = flow.from_parallel(spread)
    return flow, rows.cycle((1, 1), body, update, max_rounds=ROUNDS).collect()


def cycled_in_python() -> list[Any]:
    total = 1
    for _ in range(ROUNDS):
        total += sum((i * 7 + total) % 11 for i in range(COUNT))
    return [(ROUNDS + 1, total)]


def iterated(notes: Notes) -> Made:
    """Make pairs of the number of the round and a sum by key; all change every round."""

    def until(most: tuple[int, int]) -> bool:
        notes.add(most[0])
        return most[0] >= ROUNDS

    def body(rows: Any) -> Any:
        sums = rows.group_by(lambda pair: pair[1] % 5).reduce(
            lambda one, other: (one[0], one[1] + other[1])
        )
        return sums.flat_map(
            lambda pair: [
                (pair[1][0] + 1, pair[1][1] % 101 + pair[0] + i) for i in range(4)
            ]
        )

    flow = ms.Flow("iterated")
    pairs = flow.from_parallel(spread).map(lambda i: (0, i))
    return flow, pairs.iterate(body, reduce=max, until=until).collect()


def iterated_in_python() -> list[Any]:
    rows = list(range(COUNT))
    for _ in range(ROUNDS):
        sums = Counter[int]()
        for number in rows:
            sums[number % 5] += number
        rows = [t % 101 + key + i for key, t in sums.items() for i in range(4)]
    return [(ROUNDS, row) for row in rows]


def looped(notes: Notes) -> Made:
    """Let tokens go round, each time to another task, and note their first laps."""

    def moved(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        for token, laps in rows:
            if laps == 0:
                notes.add(token)
        notes.linger()
        return [(token, laps + 1) for token, laps in rows]

    def lap(rows: Any) -> tuple[Any, Any]:
        made = rows.map_batches(moved).shuffle()
        return (
            made.filter(lambda token: token[1] < ROUNDS + token[0]),
            made.filter(lambda token: token[1] >= ROUNDS + token[0]),
        )

    flow = ms.Flow("looped")
    tokens = flow.from_parallel(spread).map(lambda i: (i, 0))
    return flow, tokens.loop(lap).collect()


def looped_in_python() -> list[Any]:
    return [(i, ROUNDS + i) for i in range(COUNT)]


class Program(NamedTuple):
    """A flow, what plain Python says of it, and the first things that it notes."""

    name: str
    make: Callable[[Notes], Made]
    expected: Callable[[], list[Any]]
    early: list[int]


IN_ROUNDS = [
    Program("cycle", cycled, cycled_in_python, list(range(1, EARLY + 1))),
    Program("iterate", iterated, iterated_in_python, list(range(1, EARLY + 1))),
]
FREE = Program("loop", looped, looped_in_python, list(range(COUNT)))


def begun(
    program: Program, notes: Notes, place: dict[str, Any]
) -> tuple[ms.Flow, ms.Job, ms.ResultHandle[Any]]:
    """Start a job and wait until its first notes are in a complete snapshot."""
    flow, result = program.make(notes)
    state = notes.path.with_suffix(".state")
    job = flow.start(**place, state=state, snapshot_every_ms=50)
    eventually(lambda: len(notes.numbers()) >= len(program.early))
    seen = job.epoch
    # The epoch that was open just now may have been cut before.
    eventually(lambda: job.epoch >= seen + 2)
    return flow, job, result


def assert_right(program: Program, notes: Notes, result: ms.ResultHandle[Any]) -> None:
    """Check the rows, and that nothing began at the beginning again."""
    assert sorted(result.result()) == sorted(program.expected())
    times = Counter(notes.numbers())
    assert {number: times[number] for number in program.early} == dict.fromkeys(
        program.early, 1
    )


def assert_went_back_to_a_snapshot(job: ms.Job) -> None:
    assert job.recoveries()
    assert all(recovery.epoch > 0 for recovery in job.recoveries())


def rounds_done(job: ms.Job) -> int:
    (rounds,) = [m.rounds for m in job.metrics() if m.rounds is not None]
    return rounds.done


@pytest.mark.parametrize("victim", [0, 1], ids=["decider", "other"])
@pytest.mark.parametrize("program", IN_ROUNDS, ids=lambda program: program.name)
def test_rounds_go_on_where_they_were_after_a_kill(
    program: Program, victim: int, place: dict[str, Any], notes: Notes
) -> None:
    """Whoever is killed, rounds that are in a snapshot are not done again."""
    _, job, result = begun(program, notes, place)

    os.kill(job.worker_pids()[victim], signal.SIGKILL)
    before = max(notes.numbers())
    notes.hurry()

    assert job.wait()
    assert before < ROUNDS
    assert_right(program, notes, result)
    assert_went_back_to_a_snapshot(job)
    assert rounds_done(job) == ROUNDS


def test_what_goes_round_is_there_once_after_a_kill(
    place: dict[str, Any], notes: Notes
) -> None:
    """Tokens come back from state, channels and the log, and none begins again."""
    _, job, result = begun(FREE, notes, place)

    os.kill(job.worker_pids()[0], signal.SIGKILL)
    notes.hurry()

    assert job.wait()
    assert_right(FREE, notes, result)
    assert_went_back_to_a_snapshot(job)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "program", [*IN_ROUNDS, FREE], ids=lambda program: program.name
)
def test_a_savepoint_inside_a_loop_goes_on_with_other_workers(
    program: Program, workers: int, notes: Notes, tmp_path: Path
) -> None:
    """What it holds is dealt out anew; no round before it is done again."""
    flow, job, result = begun(program, notes, {"on": "processes", "workers": 2})

    job.savepoint(tmp_path / "savepoint")
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()
    notes.hurry()
    flow.run(on="processes", workers=workers, resume_from=tmp_path / "savepoint")

    assert_right(program, notes, result)
