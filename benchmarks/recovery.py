"""How long a job is away after ``kill -9`` of one of two workers, with 100 MB of state.

State is filled and touched as in ``cut_pause.py``, 1 % of it between two snapshots.  The
time from the kill on is split into *detect*, until the job knows; *restore*, until all
tasks run again with the state of the last snapshot; and *replay*, until the source is
back where it was when the worker was killed.  The result is checked: every row counts
once.

Beside it, a stateful query of Spark Structured Streaming with the RocksDB state store,
over as many keys and bytes on the same machine, whose process died: until its first new
batch is worked off.  Starting Java and the session comes on top and is shown apart.

    python benchmarks/recovery.py [--quick]
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import measure
from touching import ENTRY_BYTES, Board, Toucher, replaced

import millstream as ms

WORKERS = 2
INTERVAL_S = 1.0
SHARE = 0.01
FULL_KEYS, QUICK_KEYS = 1_000_000, 20_000
RUN_EPOCHS, QUIET_EPOCHS = 15, 3
LOOK_S = 0.001
TARGET_S = 2.0
SPARK = Path(__file__).parent / "spark_stateful.py"
PARTS = ("detect", "restore", "replay")


@dataclass(frozen=True, slots=True)
class Sample:
    """One recovery, in seconds by its parts."""

    parts: dict[str, float]

    @property
    def away_s(self) -> float:
        """How long nothing was processed."""
        return self.parts["detect"] + self.parts["restore"]


def main() -> None:
    """Measure recoveries of both."""
    options = measure.arguments(__doc__ or "").parse_args()
    keys = QUICK_KEYS if options.quick else FULL_KEYS
    found: dict[str, list[float]] = {}

    def sample(name: str) -> float:
        parts = killed(keys).parts if name == "Millstream" else restarted(keys)
        for part, seconds in parts.items():
            found.setdefault(f"{name}, {part}", []).append(seconds)
        return sum(parts.values())

    measure.interleaved(options.rounds, ("Millstream", "Spark"), sample)
    measure.finish(
        measure.Report(
            name="recovery",
            is_quick=options.quick,
            sizes={"keys": keys, "bytes of state": keys * ENTRY_BYTES},
            samples_unit="s",
            samples=found,
            figures=figures(found),
        )
    )


def killed(keys: int) -> Sample:
    """Run a flow, kill one of its workers, and time what follows."""
    updates = round(keys * SHARE) * RUN_EPOCHS
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        board_path = Path(directory) / "board"
        board = Board(board_path, WORKERS)
        source = Toucher(
            board_path,
            keys=keys,
            updates=updates,
            rate=keys * SHARE / INTERVAL_S,
            idle_s=INTERVAL_S,
        )
        flow = ms.Flow("recovery")
        keyed = flow.read(source).key_by(lambda key: key)
        total = keyed.map_with_state((b"", 0), replaced).drop_key().sum()
        job = flow.start(
            on="processes",
            workers=WORKERS,
            state=f"{directory}/state",
            snapshot_every_ms=round(INTERVAL_S * 1000),
        )
        wait_for_quiet(job, board)
        sample = timed_kill(job, board)
        job.wait()
    measure.check("Millstream", total.result(), keys + 2 * updates)
    return sample


def wait_for_quiet(job: ms.Job, board: Board) -> None:
    """Wait until the state is full and stored, and snapshots are small again."""
    while not board.is_full and not job.wait(LOOK_S):
        pass
    quiet_epoch = job.epoch + QUIET_EPOCHS
    while job.epoch < quiet_epoch and not job.wait(LOOK_S):
        pass


def timed_kill(job: ms.Job, board: Board) -> Sample:
    """Kill a worker; return the parts of the time until the job is where it was."""
    before = board.offsets
    killed_ns = time.monotonic_ns()
    os.kill(job.worker_pids()[-1], signal.SIGKILL)
    while not (job.recoveries() and job.recoveries()[0].restore_ns):
        if job.wait(LOOK_S):
            sys.exit("the job ended before it had recovered; give it more to do")
    board.clear_offsets()
    recovery = job.recoveries()[0]
    running_ns = recovery.began_ns + recovery.settle_ns + recovery.restore_ns
    while any(now < then for now, then in zip(board.offsets, before, strict=True)):
        job.wait(LOOK_S)
    return Sample(
        {
            "detect": (recovery.began_ns - killed_ns) / 1e9,
            "restore": (running_ns - recovery.began_ns) / 1e9,
            "replay": (time.monotonic_ns() - running_ns) / 1e9,
        }
    )


def restarted(keys: int) -> dict[str, float]:
    """Let a query of Spark die and start again; return the parts of that."""
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        run_spark("fill", directory, keys)
        answer = run_spark("resume", directory, keys)
    measure.check("Spark", answer["keys"], keys)
    return {"session": answer["session_s"], "query": answer["query_s"]}


def run_spark(part: str, directory: str, keys: int) -> dict[str, Any]:
    """Run a part of the query in a process of its own; return what it says."""
    run = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, str(SPARK), part, directory, str(keys)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1])) if lines else {}


def figures(samples: dict[str, list[float]]) -> list[measure.Figure]:
    """Compare medians."""
    rounds = zip(*(samples[f"Millstream, {part}"] for part in PARTS), strict=True)
    recoveries = [Sample(dict(zip(PARTS, times, strict=True))) for times in rounds]
    away_s = statistics.median(recovery.away_s for recovery in recoveries)
    query_s = statistics.median(samples["Spark, query"])
    return [
        measure.at_most("processing again after a kill", away_s, "s", TARGET_S),
        *(
            measure.Figure(part, statistics.median(samples[f"Millstream, {part}"]), "s")
            for part in PARTS
        ),
        measure.Figure("Spark's query, over processing again", query_s / away_s, "x"),
    ]


if __name__ == "__main__":
    main()
