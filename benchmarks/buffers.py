"""Rows per second through buffers of different sizes (rstream.md, section V-D.6).

Integers go from one source through an identity `map` on two workers to one sink, over
real sockets.  Half of them cross to the other worker and back.  The rate is that of the
sink between its first batch and its last, so starting processes does not count; the
number of rows is chosen for each policy so that a run takes a second or two.

    python benchmarks/buffers.py [--quick]
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import measure

import millstream as ms

WORKERS = 2
FULL_S, QUICK_S = 2.0, 0.4
FIXED_ROWS = (1, 64, 1024, 16_384)
ADAPTIVE = ms.adaptive(1024, "50ms")
POLICIES = (*(ms.fixed(rows) for rows in FIXED_ROWS), ADAPTIVE)
PILOT_BATCHES = 2_000
PILOT_ROWS_MAX = 1_000_000
GAIN_TARGET, COST_TARGET = 60, 15


class Meter(ms.Sink[int]):
    """Notes how many rows arrived, what they add up to, and when.

    Sinks have no way back to the driver, so the notes go to a file.
    """

    is_parallel = False

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def open(self, job: str, task: int) -> ms.SinkWriter[int]:  # noqa: ARG002
        """Return the only writer."""
        return MeterWriter(self._notes)


class MeterWriter(ms.SinkWriter[int]):
    """Takes batches and remembers nothing but four numbers."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._rows = self._total = 0
        self._first_rows = self._first_ns = self._last_ns = 0

    def write(self, rows: list[int]) -> None:
        """Note a batch."""
        self._last_ns = time.monotonic_ns()
        if not self._rows:
            self._first_rows, self._first_ns = len(rows), self._last_ns
        self._rows += len(rows)
        self._total += sum(rows)

    def close(self) -> None:
        """Write down what was noted."""
        notes = {
            "rows": self._rows,
            "total": self._total,
            "later_rows": self._rows - self._first_rows,
            "seconds": (self._last_ns - self._first_ns) / 1e9,
        }
        self._notes.write_text(json.dumps(notes))


def main() -> None:
    """Measure every policy and compare them."""
    options = measure.arguments(__doc__ or "").parse_args()
    seconds = QUICK_S if options.quick else FULL_S
    policies = {str(policy): policy for policy in POLICIES}
    sizes = {name: row_count(policy, seconds) for name, policy in policies.items()}
    samples = measure.interleaved(
        options.rounds, policies, lambda name: rate(policies[name], sizes[name])
    )
    measure.finish(
        measure.Report(
            name="buffers",
            is_quick=options.quick,
            sizes={f"rows with {name}": rows for name, rows in sizes.items()},
            samples_unit="rows/s",
            samples=samples,
            figures=figures(samples),
        )
    )


def row_count(policy: ms.BufferPolicy, seconds: float) -> int:
    """Return how many rows take about `seconds`, from a short run."""
    pilot_rows = min(policy.rows * PILOT_BATCHES, PILOT_ROWS_MAX)
    return max(pilot_rows, round(rate(policy, pilot_rows) * seconds))


def rate(policy: ms.BufferPolicy, rows: int) -> float:
    """Send rows through a flow; return how many arrived per second."""
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        notes_file = Path(directory) / "notes.json"
        flow = ms.Flow("buffers", buffer=policy)
        flow.from_iterable(range(rows)).map(lambda row: row).write(Meter(notes_file))
        flow.run(on="processes", workers=WORKERS)
        notes = json.loads(notes_file.read_text())
    expected = (rows, rows * (rows - 1) // 2)
    measure.check(str(policy), (notes["rows"], notes["total"]), expected)
    return float(notes["later_rows"] / notes["seconds"])


def figures(samples: dict[str, list[float]]) -> list[measure.Figure]:
    """Compare the medians."""
    median = {name: statistics.median(rates) for name, rates in samples.items()}
    one, usual = median[str(ms.fixed(1))], median[str(ms.fixed(1024))]
    cost = 100 * (usual / median[str(ADAPTIVE)] - 1)
    return [
        measure.at_least("fixed(1024) over fixed(1)", usual / one, "x", GAIN_TARGET),
        measure.at_most(f"{ADAPTIVE} over fixed(1024)", cost, "%", COST_TARGET),
    ]


if __name__ == "__main__":
    main()
