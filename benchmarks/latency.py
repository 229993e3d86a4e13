"""End-to-end latency: Fig. 9 of rstream.md, and a keyed count beside Spark's.

**Buffers** (section V-D.6).  A record goes from its source on one worker to a `map` on the
other and back to a sink on the first, over real sockets, under light load (one record per
millisecond) and full load (as fast as it goes), with fixed and adaptive buffers.

**Keyed count.**  10,000 records per second are counted by key, and every record's age is
taken where its count comes out: Millstream with `adaptive(1024, "5ms")`, without and with a
snapshot every second, and Spark Structured Streaming in micro-batches and in real-time
mode (``spark_latency.py``).  The source that Spark has for real-time mode without Kafka
is slower than that, so it gets fewer records.

An age is counted from the time at which a record was *due* in its source.  Plots go to
``results/latency.png`` and ``results/latency_keyed_count.png``.

    python benchmarks/latency.py [--quick]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import matplotlib as mpl
import measure
import numpy as np
import word_count
from matplotlib import pyplot as plt
from paced import Metronome, Torrent

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

T = TypeVar("T")

HERE, THERE = 0, 1
WORKERS = 2
KEYS = 100
LIGHT_INTERVAL_NS, KEYED_INTERVAL_NS = 1_000_000, 100_000
KEYED_RATE, REAL_TIME_RATE = 10_000, 1_000
FIXED, USUAL = ms.fixed(1024), ms.adaptive(1024, "50ms")
QUICKER, KEYED = ms.adaptive(1024, "1ms"), ms.adaptive(1024, "5ms")
LIGHT, FULL = "light load", "full load"
TARGETS_MS = {USUAL: 110, QUICKER: 10}
KEYED_TARGET_MS = 50
OWN, OWN_SAFE = "Millstream", "Millstream, snapshot every second"
MICRO = "Spark, micro-batches"
REAL = f"Spark, real-time mode ({REAL_TIME_RATE:,} a second)"
MODES = {MICRO: ("micro", KEYED_RATE), REAL: ("real", REAL_TIME_RATE)}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    light_records: int
    full_records: int
    keyed_seconds: int


FULL_SIZES = Sizes(4_000, 2_000_000, 8)
QUICK_SIZES = Sizes(2_100, 200_000, 2)


@dataclass(frozen=True, slots=True)
class Case:
    """A panel of Fig. 9."""

    load: str
    policy: ms.BufferPolicy

    def __str__(self) -> str:
        """Return its name in tables."""
        return f"{self.load}, {self.policy}"


FIG_9 = tuple(Case(load, policy) for load in (LIGHT, FULL) for policy in (FIXED, USUAL))
CASES = (*FIG_9, Case(LIGHT, QUICKER))

Ages = Any
"""An array of milliseconds, one for each record."""

Rounds = list[Ages]
"""The ages of every round."""


def main() -> None:
    """Measure everything, print it and draw it."""
    options = measure.arguments(__doc__ or "").parse_args()
    sizes = QUICK_SIZES if options.quick else FULL_SIZES
    rounds = range(options.rounds)
    spark = word_count.session()
    try:
        by_case, rates = fig_9(spark, sizes, options.rounds)
        by_name: dict[str, Rounds] = {OWN: [], OWN_SAFE: []}
        for _ in rounds:
            by_name[OWN].append(keyed_ages(spark, sizes))
            by_name[OWN_SAFE].append(safe_ages(spark, sizes))
    finally:
        spark.stop()
    for name in MODES:
        found = [spark_ages(name, sizes.keyed_seconds) for _ in rounds]
        if all(ages is not None for ages in found):
            by_name[name] = found
    named = {str(case): ages for case, ages in by_case.items()}
    named |= {f"keyed count, {name}": ages for name, ages in by_name.items()}
    print_ages(named)
    plot_fig_9(together(by_case))
    plot_keyed(together(by_name))
    measure.finish(
        measure.Report(
            name="latency",
            is_quick=options.quick,
            sizes={
                "records under light load": sizes.light_records,
                "records under full load": sizes.full_records,
                "records a second to count": KEYED_RATE,
                "records a second in real-time mode": REAL_TIME_RATE,
                "workers": WORKERS,
            },
            samples_unit="ms",
            samples={
                f"{name}, p{percent}": percentiles(ages, percent)
                for name, ages in named.items()
                for percent in (50, 99)
            },
            figures=[*buffer_figures(by_case, rates), *keyed_figures(by_name)],
        )
    )


def percentiles(rounds: Rounds, percent: float) -> list[float]:
    """Return a percentile of every round."""
    return [float(np.percentile(ages, percent)) for ages in rounds]


def percentile(rounds: Rounds, percent: float) -> float:
    """Return the median of a percentile over the rounds."""
    return statistics.median(percentiles(rounds, percent))


def fig_9(
    spark: SparkSession, sizes: Sizes, rounds: int
) -> tuple[dict[Case, Rounds], dict[Case, float]]:
    """Return the ages of all rounds, and the median of records per second."""
    hop_ages(spark, Case(FULL, USUAL), sizes.light_records)  # warms up
    ages: dict[Case, Rounds] = {case: [] for case in CASES}
    rates: dict[Case, list[float]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case in CASES:
            measure.say(str(case))
            records = sizes.light_records if case.load == LIGHT else sizes.full_records
            found, rate = hop_ages(spark, case, records)
            ages[case].append(found)
            rates[case].append(rate)
    return ages, {case: statistics.median(found) for case, found in rates.items()}


def hop_ages(spark: SparkSession, case: Case, records: int) -> tuple[Ages, float]:
    """Send records there and back; return their ages, and how many came per second."""
    flow = ms.Flow("latency", buffer=case.policy)
    source: ms.Source[int] = (
        Metronome(records, LIGHT_INTERVAL_NS)
        if case.load == LIGHT
        else Torrent(records)
    )
    there = flow.read(source).repartition_by(to_task(THERE))
    here = there.map(lambda due_ns: due_ns).repartition_by(to_task(HERE))
    # Records of one batch of a torrent are due at the same time: a C loop counts them.
    seen = here.map_batches(arrived).collect()
    flow.run(spark=spark, workers=WORKERS)
    due_ns, now_ns, counts = np.array(seen.result(), dtype=np.int64).T
    measure.check(str(case), int(counts.sum()), records)
    rate = records / (now_ns.max() - due_ns.min()) * 1e9
    return np.repeat((now_ns - due_ns) / 1e6, counts), float(rate)


def arrived(rows: list[int]) -> list[tuple[int, int, int]]:
    """Return when the records of a batch were due, the time, and how many they are."""
    now_ns = time.monotonic_ns()
    return [(due_ns, now_ns, count) for due_ns, count in Counter(rows).items()]


def to_task(number: int) -> Callable[[int], int]:
    """Return a function that sends every record to one task."""
    return lambda _record: number


def safe_ages(spark: SparkSession, sizes: Sizes) -> Ages:
    """Return the ages of a keyed count that can go on after a crash."""
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        options = {"state": directory, "snapshot_every": "1s"}
        return keyed_ages(spark, sizes, **options)


def keyed_ages(spark: SparkSession, sizes: Sizes, **options: Any) -> Ages:
    """Return the ages of all records of a keyed count where the counts come out."""
    records = KEYED_RATE * sizes.keyed_seconds
    flow = ms.Flow("keyed-count", buffer=KEYED)
    due = flow.read(Metronome(records, KEYED_INTERVAL_NS))
    keyed = due.key_by(lambda due_ns: due_ns // KEYED_INTERVAL_NS % KEYS)
    counted = keyed.map_with_state(0, lambda count, due: (count + 1, (count + 1, due)))
    ages = counted.map(lambda row: (row[0], (time.monotonic_ns() - row[1]) / 1e6))
    found = ages.drop_key().collect()
    flow.run(spark=spark, workers=WORKERS, **options)
    counts, milliseconds = zip(*found.result(), strict=True)
    measure.check(OWN, max(counts), records // KEYS)
    return np.array(milliseconds)


def spark_ages(name: str, seconds: int) -> Ages | None:
    """Return the ages of Spark's keyed count; None, and why, if it cannot do it."""
    mode, rate = MODES[name]
    measure.say(name)
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        target = Path(directory) / "ages.npy"
        script = Path(__file__).with_name("spark_latency.py")
        command = [sys.executable, script, mode, str(rate), str(seconds), target]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
        if ended.returncode:
            reason = ended.stderr.strip().splitlines()[-1:]
            print(f"{name}: not measured: {' '.join(reason)}")
            return None
        return np.load(target)


def buffer_figures(
    ages: dict[Case, Rounds], rates: dict[Case, float]
) -> list[measure.Figure]:
    """Say what buffers do to latency and throughput."""
    tails = {case: percentile(ages[case], 99) for case in CASES}
    fixed, usual = Case(FULL, FIXED), Case(FULL, USUAL)
    return [
        *(
            measure.at_most(
                f"p99, {LIGHT}, {policy}", tails[Case(LIGHT, policy)], "ms", target_ms
            )
            for policy, target_ms in TARGETS_MS.items()
        ),
        measure.Figure(
            f"p99, {LIGHT}, {FIXED} over {USUAL}",
            tails[Case(LIGHT, FIXED)] / tails[Case(LIGHT, USUAL)],
            "x",
        ),
        measure.Figure(
            f"p50, {FULL}, {USUAL} over {FIXED}",
            percentile(ages[usual], 50) / percentile(ages[fixed], 50),
            "x",
        ),
        measure.Figure(
            f"records per second, {FULL}, {USUAL} over {FIXED}",
            rates[usual] / rates[fixed],
            "x",
        ),
    ]


def keyed_figures(ages: dict[str, Rounds]) -> list[measure.Figure]:
    """Compare the keyed counts."""
    tails = {name: percentile(found, 99) for name, found in ages.items()}
    medians = {name: percentile(found, 50) for name, found in ages.items()}
    found = [
        measure.at_most(f"p99, keyed count, {name}", tails[name], "ms", KEYED_TARGET_MS)
        for name in (OWN, OWN_SAFE)
    ]
    for name in MODES:
        if name in ages:
            found += [
                measure.Figure(
                    f"p50, {name} over {OWN}", medians[name] / medians[OWN], "x"
                ),
                measure.Figure(
                    f"p99, {name} over {OWN}", tails[name] / tails[OWN], "x"
                ),
            ]
    return found


def print_ages(ages: dict[str, Rounds]) -> None:
    """Print percentiles of every case, over all rounds."""
    percents = (1, 50, 90, 99, 100)
    measure.print_table(
        ("age in ms", "records", *(f"p{percent}" for percent in percents)),
        [
            (
                name,
                f"{len(found):,}",
                *(measure.shown(v, "") for v in np.percentile(found, percents)),
            )
            for name, found in together(ages).items()
        ],
    )


def together(ages: dict[T, Rounds]) -> dict[T, Ages]:
    """Put the ages of all rounds together."""
    return {name: np.concatenate(rounds) for name, rounds in ages.items()}


def plot_fig_9(ages: dict[Case, Ages]) -> None:
    """Draw the four histograms as in the paper."""
    mpl.use("agg")
    figure, panels = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
    for axes, case in zip(panels.flat, FIG_9, strict=True):
        found = ages[case]
        weights = np.full(len(found), 100 / len(found))
        axes.hist(found, bins=50, weights=weights)
        axes.set(title=str(case), xlabel="latency in ms", ylabel="% of records")
        axes.set_xlim(left=0)
    saved(figure, "latency")


def plot_keyed(ages: dict[str, Ages]) -> None:
    """Draw which share of records is younger than what."""
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for name, found in ages.items():
        axes.plot(np.sort(found), np.linspace(0, 100, len(found)), label=name)
    axes.axvline(KEYED_TARGET_MS, color="gray", linestyle=":")
    axes.set(xscale="log", xlabel="latency in ms", ylabel="% of records", ylim=(0, 100))
    figure.legend(loc="outside lower center", ncols=2)
    saved(figure, "latency_keyed_count")


def saved(figure: Any, name: str) -> None:
    """Write a plot beside the other results."""
    measure.RESULTS.mkdir(exist_ok=True)
    figure.savefig(measure.RESULTS / f"{name}.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
