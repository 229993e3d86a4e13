"""What snapshots cost: runtime with and without them (abs-snapshots.md, section 7).

The topology is that of the paper's Fig. 5: six operators and three full shuffles, with
source offsets and aggregates by key as state.  A record is mixed, counted by three keys
one after the other, each behind a shuffle, and added to a checksum, which does not
depend on the order in which records met.  The runtime is that of the tasks: starting
processes does not count, the last snapshot does.

Like Fig. 6: the runtime on two workers by the time between snapshots, asynchronous and
synchronous.  Like Fig. 7: with and without snapshots on one, two and four workers.  The
plot goes to ``results/snapshot_cost.png``.

Channels are kept short, for everybody: a barrier comes behind the rows that are in
flight, and an epoch that takes longer than its interval would make the cost look small.

    python benchmarks/snapshot_cost.py [--quick]
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import measure
from matplotlib import pyplot as plt

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

KEYS = 10_000
MIX, MODULUS = 7_919, 1_000_003
WORKERS = 2
SHORT_CHANNELS = {"channel_credit_bytes": 32 * 1024, "local_channel_batches": 2}
LOOK_S = 0.002
FULL_RECORDS, QUICK_RECORDS = 3_000_000, 150_000
FULL_INTERVALS_S, QUICK_INTERVALS_S = (0.2, 0.5, 1.0, 3.0), (0.2, 1.0)
FULL_WIDTHS, QUICK_WIDTHS = (1, 2, 4), (1, 2)
WIDTHS_INTERVAL_S = 3.0
ASYNCHRONOUS, SYNCHRONOUS = "asynchronous", "synchronous"
TARGETS_PERCENT = {1.0: 5.0, 0.2: 15.0}


@dataclass(frozen=True, slots=True)
class Case:
    """How to run the flow; without an interval, without snapshots."""

    workers: int = WORKERS
    mode: str = ASYNCHRONOUS
    interval_s: float | None = None

    def __str__(self) -> str:
        """Return its name in tables."""
        plural = "" if self.workers == 1 else "s"
        width = f"{self.workers} worker{plural}"
        if self.interval_s is None:
            return f"{width}, no snapshots"
        return f"{width}, {self.mode} every {self.interval_s:g} s"


@dataclass(slots=True)
class Tally:
    """What was seen besides the times."""

    checksum: int | None = None
    #: Complete snapshots of every run, by case.
    epochs: dict[str, list[int]] = field(default_factory=dict)


def main() -> None:
    """Measure every case and compare."""
    options = measure.arguments(__doc__ or "").parse_args()
    records = QUICK_RECORDS if options.quick else FULL_RECORDS
    intervals_s = QUICK_INTERVALS_S if options.quick else FULL_INTERVALS_S
    widths = QUICK_WIDTHS if options.quick else FULL_WIDTHS
    cases = {str(case): case for case in cases_of(intervals_s, widths)}
    tally = Tally()
    samples = measure.interleaved(
        options.rounds, cases, lambda name: runtime_s(cases[name], records, tally)
    )
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    print_epochs(tally)
    plot(medians, intervals_s, widths)
    measure.finish(
        measure.Report(
            name="snapshot_cost",
            is_quick=options.quick,
            sizes={"records": records, "keys by aggregate": KEYS},
            samples_unit="s",
            samples=samples,
            figures=figures(medians, intervals_s, widths),
        )
    )


def cases_of(intervals_s: Sequence[float], widths: Sequence[int]) -> list[Case]:
    """Return the cases of both figures; what is in both is there once."""
    modes = (ASYNCHRONOUS, SYNCHRONOUS)
    by_interval = [Case(WORKERS, m, i) for m in modes for i in intervals_s]
    by_width = [
        Case(workers, ASYNCHRONOUS, interval_s)
        for workers in widths
        for interval_s in (None, WIDTHS_INTERVAL_S)
    ]
    return list(dict.fromkeys([Case(), *by_interval, *by_width]))


def runtime_s(case: Case, records: int, tally: Tally) -> float:
    """Run the flow; return how long its tasks ran."""
    flow, checksum = topology(records)
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        job = flow.start(
            on="processes", workers=case.workers, **settings(case, directory)
        )
        while job.status() == "starting" and not job.wait(LOOK_S):
            pass
        began_ns = monotonic_ns()
        job.wait()
        seconds = (monotonic_ns() - began_ns) / 1e9
    if tally.checksum is None:
        tally.checksum = checksum.result()
    measure.check(str(case), checksum.result(), tally.checksum)
    if case.interval_s is not None:
        tally.epochs.setdefault(str(case), []).append(len(job.snapshots()))
    return seconds


def settings(case: Case, directory: str) -> dict[str, Any]:
    """Return the options of a run."""
    if case.interval_s is None:
        return {**SHORT_CHANNELS}
    return {
        **SHORT_CHANNELS,
        "state": directory,
        "snapshot_every_ms": round(case.interval_s * 1000),
        "snapshot_mode": case.mode,
    }


def topology(records: int) -> tuple[ms.Flow, ms.ResultHandle[int]]:
    """Return the flow of Fig. 5: a source, five operators, three full shuffles."""
    flow = ms.Flow("snapshot-cost")
    numbers = flow.from_parallel(lambda rank, size: range(rank, records, size))
    mixed = numbers.map(lambda number: number * MIX % MODULUS)
    once = mixed.group_by(lambda record: record % KEYS).scan(counted, initial=0)
    twice = once.group_by(key_of_count).scan(counted, initial=0)
    thrice = twice.group_by(key_of_count).scan(counted, initial=0)
    return flow, thrice.map(weight).sum()


def counted(count: int, _record: object) -> int:
    """Add a record to the aggregate of its key."""
    return count + 1


def key_of_count(pair: tuple[int, int]) -> int:
    """Return another key for a key that was counted."""
    return (pair[0] * MIX + pair[1]) % KEYS


def weight(pair: tuple[int, int]) -> int:
    """Return what a record adds to the checksum."""
    return pair[0] * pair[1] % MODULUS


def cost_percent(medians: dict[str, float], case: Case) -> float:
    """Return how much longer a case takes than the same without snapshots."""
    plain = medians[str(Case(case.workers))]
    return 100 * (medians[str(case)] / plain - 1)


def figures(
    medians: dict[str, float], intervals_s: Sequence[float], widths: Sequence[int]
) -> list[measure.Figure]:
    """Compare every case with the one without snapshots."""
    found = []
    for interval_s in intervals_s:
        own = cost_percent(medians, Case(WORKERS, ASYNCHRONOUS, interval_s))
        other = cost_percent(medians, Case(WORKERS, SYNCHRONOUS, interval_s))
        target = TARGETS_PERCENT.get(interval_s)
        bound: measure.Bound | None = None if target is None else "at most"
        every = f"every {interval_s:g} s"
        found += [
            measure.Figure(f"asynchronous {every} costs", own, "%", bound, target),
            measure.Figure(f"synchronous {every} costs", other, "%"),
        ]
    for workers in widths:
        case = Case(workers, ASYNCHRONOUS, WIDTHS_INTERVAL_S)
        cost = cost_percent(medians, case)
        found.append(measure.Figure(f"{case} costs", cost, "%"))
    return found


def print_epochs(tally: Tally) -> None:
    """Print how many snapshots the runs took; fewer than due means that they lasted."""
    measure.print_table(
        ("case", "snapshots in each round"),
        [(name, " ".join(map(str, counts))) for name, counts in tally.epochs.items()],
    )


def plot(
    medians: dict[str, float], intervals_s: Sequence[float], widths: Sequence[int]
) -> None:
    """Draw both figures side by side."""
    mpl.use("agg")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    plain = medians[str(Case())]
    left.axhline(plain, color="gray", linestyle="--", label="no snapshots")
    for mode in (SYNCHRONOUS, ASYNCHRONOUS):
        times = [medians[str(Case(WORKERS, mode, i))] for i in intervals_s]
        left.plot(intervals_s, times, marker="o", label=mode)
    named(left, "time between snapshots (s)", f"{WORKERS} workers")
    positions = range(len(widths))
    for offset, interval_s in ((-0.2, None), (0.2, WIDTHS_INTERVAL_S)):
        times = [medians[str(Case(w, ASYNCHRONOUS, interval_s))] for w in widths]
        label = "no snapshots" if interval_s is None else f"every {interval_s:g} s"
        right.bar([p + offset for p in positions], times, width=0.4, label=label)
    right.set_xticks(list(positions), [str(width) for width in widths])
    named(right, "workers", "asynchronous")
    measure.RESULTS.mkdir(exist_ok=True)
    figure.savefig(measure.RESULTS / "snapshot_cost.png", dpi=150)
    plt.close(figure)


def named(axes: Axes, horizontal: str, title: str) -> None:
    """Write on a panel what it shows."""
    axes.set_xlabel(horizontal)
    axes.set_ylabel("runtime (s)")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.legend()


if __name__ == "__main__":
    main()
