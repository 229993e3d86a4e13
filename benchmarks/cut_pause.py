"""How long tasks stand still at a cut, with 100 MB of state of which 1 % was touched.

A source fills the state, every key once, and then touches keys one after the other by
the clock, 1 % of all between two snapshots.  *Rows* keep a dict for every key, with a
text and a count in it (`map_with_state`), *frames* twelve aggregates in columns
(`group_by.agg`); either way a key and what is kept for it have about 100 bytes.

A snapshot's pause is that of the task that stood still longest.  Pauses while the state
is being filled do not count: nearly all of it is new then.  What all snapshots wrote is
compared with what was touched: the bytes of keys and values, without any encoding.

    python benchmarks/cut_pause.py [--quick]
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import measure
import polars as pl
from touching import ENTRY_BYTES, KEY_BYTES, Board, Toucher, replaced

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.runtime.snapshot_stats import Snapshot

WORKERS = 2
INTERVAL_S = 0.5
SHARE = 0.01
FULL_KEYS, QUICK_KEYS = 1_000_000, 20_000
FULL_EPOCHS, QUICK_EPOCHS = 40, 6
IDLE_EPOCHS = 4
FILLING_EPOCHS = 2
"""Epochs after the last new key that may still have many of them."""
COLUMNS = ("a", "b", "c", "d")
LOOK_S = 0.05
PAUSE_TARGET_MS, BYTES_TARGET = 20, 1.2


@dataclass(frozen=True, slots=True)
class Trial:
    """A flow, and what it must find."""

    flow: ms.Flow
    found: Callable[[], object]
    expected: object
    entry_bytes: int


@dataclass(slots=True)
class Findings:
    """What the rounds have found out, by kind of state."""

    pauses_ms: dict[str, list[float]] = field(default_factory=dict)
    bytes_ratio: dict[str, list[float]] = field(default_factory=dict)


def main() -> None:
    """Measure rows and frames."""
    options = measure.arguments(__doc__ or "").parse_args()
    keys = QUICK_KEYS if options.quick else FULL_KEYS
    epochs = QUICK_EPOCHS if options.quick else FULL_EPOCHS
    kinds = {"rows": by_rows, "frames": by_frames}
    findings = Findings()

    def sample(kind: str) -> float:
        pauses_ms, ratio = observed(kind, kinds[kind], keys, epochs)
        findings.pauses_ms.setdefault(kind, []).extend(pauses_ms)
        findings.bytes_ratio.setdefault(kind, []).append(ratio)
        return percentile(pauses_ms, 99)

    samples = measure.interleaved(options.rounds, kinds, sample)
    measure.finish(
        measure.Report(
            name="cut_pause",
            is_quick=options.quick,
            sizes={"keys": keys, "touched by epoch": round(keys * SHARE)},
            samples_unit="ms",
            samples={f"p99 of {kind}": taken for kind, taken in samples.items()},
            figures=figures(findings),
        )
    )


def observed(
    kind: str, build: Callable[[Toucher], Trial], keys: int, epochs: int
) -> tuple[list[float], float]:
    """Run a flow; return the pauses once it is filled, and bytes stored by touched."""
    updates = round(keys * SHARE) * epochs
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        board = Board(Path(directory) / "board", WORKERS)
        source = Toucher(
            Path(directory) / "board",
            keys=keys,
            updates=updates,
            rate=keys * SHARE / INTERVAL_S,
            idle_s=IDLE_EPOCHS * INTERVAL_S,
        )
        trial = build(source)
        job = trial.flow.start(
            on="processes",
            workers=WORKERS,
            state=f"{directory}/state",
            snapshot_every_ms=round(INTERVAL_S * 1000),
        )
        while not board.is_full and not job.wait(LOOK_S):
            pass
        filled_epoch = job.epoch + FILLING_EPOCHS
        job.wait()
    measure.check(kind, trial.found(), trial.expected)
    snapshots = job.snapshots()
    stored = sum(snapshot.state_bytes for snapshot in snapshots)
    steady = [s for s in snapshots if s.epoch > filled_epoch]
    return pauses(steady), stored / (keys + updates) / trial.entry_bytes


def pauses(snapshots: list[Snapshot]) -> list[float]:
    """Return the longest pause of every snapshot in which something was stored."""
    return [snapshot.pause_ms for snapshot in snapshots if snapshot.duration_ms]


def by_rows(source: Toucher) -> Trial:
    """Return a flow that keeps a dict for every key."""
    flow = ms.Flow("cut-pause-rows")
    keyed = flow.read(source).key_by(lambda key: key)
    handle = keyed.map_with_state((b"", 0), replaced).drop_key().sum()
    expected = source.keys + 2 * source.updates
    return Trial(flow, handle.result, expected, ENTRY_BYTES)


def by_frames(source: Toucher) -> Trial:
    """Return a flow that keeps twelve aggregates for every key."""
    flow = ms.Flow("cut-pause-frames")
    numbers = flow.read(source).map(lambda key: (key,)).to_frame({"key": pl.Int64})
    columns = [
        (pl.col("key") * (1 + place)).alias(name) for place, name in enumerate(COLUMNS)
    ]
    exprs = [
        getattr(pl.col(name), verb)().alias(f"{verb}_{name}")
        for name in COLUMNS
        for verb in ("sum", "min", "max")
    ]
    by_key = numbers.with_columns(columns).group_by("key").agg(exprs)
    handle = by_key.filter(pl.col("key") == 1).collect()
    sums = [2 * (1 + place) for place in range(len(COLUMNS))]
    expected = [(1, *(n for total in sums for n in (total, total // 2, total // 2)))]
    entry_bytes = KEY_BYTES + 8 * len(exprs)
    return Trial(flow, lambda: handle.result().rows(), expected, entry_bytes)


def figures(findings: Findings) -> list[measure.Figure]:
    """Compare with the targets."""
    found = []
    for kind, pauses_ms in findings.pauses_ms.items():
        ratio = statistics.median(findings.bytes_ratio[kind])
        tail = percentile(pauses_ms, 99)
        found += [
            measure.at_most(f"{kind}, p99 of the pause", tail, "ms", PAUSE_TARGET_MS),
            measure.Figure(
                f"{kind}, p50 of the pause", percentile(pauses_ms, 50), "ms"
            ),
            measure.at_most(f"{kind}, bytes by touched", ratio, "x", BYTES_TARGET),
        ]
    return found


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that at least `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


if __name__ == "__main__":
    main()
