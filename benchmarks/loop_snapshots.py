"""What snapshots cost a streaming loop: the same loop with one every second, and without.

Records go round a parallel loop that shuffles, each as often as its number says, so that
about as many are on their way round as come in.  What is under way at a cut is logged and
stored.

    python benchmarks/loop_snapshots.py [--quick]
"""

from __future__ import annotations

import statistics
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import measure

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS, LAPS = 2, 8
FULL_RECORDS, QUICK_RECORDS = 1_500_000, 50_000
WITHOUT, WITH = "without snapshots", "a snapshot every second"
COST_TARGET = 10


def main() -> None:
    """Measure both."""
    options = measure.arguments(__doc__ or "").parse_args()
    records = QUICK_RECORDS if options.quick else FULL_RECORDS
    epochs: list[int] = []

    def seconds(name: str) -> float:
        taken, (found, taken_epochs) = measure.timed(
            lambda: run(records, has_snapshots=name == WITH)
        )
        measure.check(name, found, expected(records))
        if name == WITH:
            epochs.append(taken_epochs)
        return taken

    samples = measure.interleaved(options.rounds, [WITHOUT, WITH], seconds)
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    cost = (medians[WITH] / medians[WITHOUT] - 1) * 100
    hops = expected(records)[1]
    measure.finish(
        measure.Report(
            name="loop_snapshots",
            is_quick=options.quick,
            sizes={"records": records, "times round": hops, "workers": WORKERS},
            samples_unit="s",
            samples=samples,
            figures=[
                measure.at_most("snapshots cost", cost, "%", COST_TARGET),
                measure.Figure("snapshots taken", statistics.median(epochs), ""),
                measure.Figure(
                    "rate", hops / medians[WITHOUT] / 1e6, "M times round/s"
                ),
            ],
        )
    )


def expected(records: int) -> tuple[int, int]:
    """Return how many records leave the loop, and how often they went round."""
    return records, sum(1 + i % LAPS for i in range(records))


def numbers(records: int) -> Any:
    """Return a source that deals the numbers out."""

    def spread(rank: int, size: int) -> Iterator[int]:
        return iter(range(rank, records, size))

    return spread


def run(records: int, *, has_snapshots: bool) -> tuple[tuple[int, int], int]:
    """Run the loop; return what left it, and how many snapshots there were."""

    def lap(rows: ms.Stream[Any]) -> tuple[ms.Stream[Any], ms.Stream[Any]]:
        moved = rows.map(lambda row: (row[0] - 1, row[1] + 1)).shuffle()
        return moved.filter(lambda row: row[0] > 0), moved.filter(
            lambda row: row[0] <= 0
        )

    flow = ms.Flow("loop-snapshots")
    source = flow.from_parallel(numbers(records)).map(lambda i: (1 + i % LAPS, 0))
    laps = source.loop(lap).map(lambda row: row[1])
    both = laps.map(lambda hops: (1, hops))
    total = both.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]))
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        state = {"state": directory, "snapshot_every_ms": 1000} if has_snapshots else {}
        job = flow.start(on="processes", workers=WORKERS, **state)  # type: ignore[arg-type]
        job.wait()
        return total.result(), len(job.snapshots())


if __name__ == "__main__":
    main()
