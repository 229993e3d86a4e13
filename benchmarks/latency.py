"""End-to-end latency under light load: a record per millisecond, two network hops.

A record goes from its source on one worker to a `map` on the other and back to a sink
on the first, over real sockets.  Its age is taken in the sink against the time at which
it was *due* in the source, so a source that is asked late does not hide the delay.
Processes of one machine share the monotonic clock.

    python benchmarks/latency.py [--quick]
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import measure

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 2
INTERVAL_NS = 1_000_000
FULL_RECORDS, QUICK_RECORDS = 5_000, 1_500
HERE, THERE = 0, 1
USUAL, QUICKER = ms.adaptive(1024, "50ms"), ms.adaptive(1024, "1ms")
POLICIES = {str(policy): policy for policy in (USUAL, QUICKER)}
TARGETS_MS = {str(USUAL): 110, str(QUICKER): 10}


class Metronome(ms.Source[int]):
    """A record per interval, by the clock; a record is the time at which it was due."""

    is_parallel = False

    def __init__(self, records: int) -> None:
        self._records = records

    def splits(self, task_count: int) -> list[ms.Split]:  # noqa: ARG002
        """Return the one split."""
        return [ms.Split("metronome")]

    def open(
        self,
        split: ms.Split,  # noqa: ARG002
        offset: int,
        config: ms.Config,  # noqa: ARG002
    ) -> ms.SourceReader[int]:
        """Return a reader that leaves out the first `offset` records."""
        return MetronomeReader(self._records, offset)


class MetronomeReader(ms.SourceReader[int]):
    """Releases what has become due since it was asked last."""

    def __init__(self, records: int, offset: int) -> None:
        self._records = records
        self._offset = offset
        self._next_ns = time.monotonic_ns()

    def read(self, rows: int) -> list[int] | None:
        """Return the records that are due."""
        if self._offset >= self._records:
            return None
        now_ns = time.monotonic_ns()
        due_count = max(0, (now_ns - self._next_ns) // INTERVAL_NS + 1)
        count = min(due_count, self._records - self._offset, rows)
        due = [self._next_ns + number * INTERVAL_NS for number in range(count)]
        self._next_ns += count * INTERVAL_NS
        self._offset += count
        return due

    @property
    def offset(self) -> int:
        """How many records were released."""
        return self._offset


def main() -> None:
    """Measure the ages of records under two buffer timeouts."""
    options = measure.arguments(__doc__ or "").parse_args()
    records = QUICK_RECORDS if options.quick else FULL_RECORDS
    medians: dict[str, list[float]] = {f"p50 with {name}": [] for name in POLICIES}

    def sample(name: str) -> float:
        ages = ages_ms(POLICIES[name], records)
        medians[f"p50 with {name}"].append(percentile(ages, 50))
        return percentile(ages, 99)

    tails = measure.interleaved(options.rounds, POLICIES, sample)
    measure.finish(
        measure.Report(
            name="latency",
            is_quick=options.quick,
            sizes={"records": records, "hops": 2, "workers": WORKERS},
            samples_unit="ms",
            samples=medians | {f"p99 with {name}": tails[name] for name in tails},
            figures=[
                measure.at_most(
                    f"p99 with {name}", statistics.median(tails[name]), "ms", target_ms
                )
                for name, target_ms in TARGETS_MS.items()
            ],
        )
    )


def ages_ms(policy: ms.BufferPolicy, records: int) -> list[float]:
    """Run the flow and return the age of every record at the sink."""
    flow = ms.Flow("latency", buffer=policy)
    there = flow.read(Metronome(records)).repartition_by(to_task(THERE))
    here = there.map(lambda due_ns: due_ns).repartition_by(to_task(HERE))
    ages = here.map(lambda due_ns: (time.monotonic_ns() - due_ns) / 1e6).collect()
    flow.run(on="processes", workers=WORKERS)
    measure.check(f"the flow with {policy}", len(ages.result()), records)
    return ages.result()


def to_task(number: int) -> Callable[[int], int]:
    """Return a function that sends every record to one task."""
    return lambda _record: number


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that at least `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


if __name__ == "__main__":
    main()
