"""The keyed index and the tokenizer, beside Polars, a dict and `re`.

Sums by key go into running state in batches of 64 k rows, with 100, 100 k and 10 M
distinct keys that are already known.  Everything runs on one core, and what is measured
is processor time: these are loops, and nothing in them waits.

    python benchmarks/key_index.py [--quick]
"""

from __future__ import annotations

import os

# Polars reads it when it is imported; peers get the one core that we use.
os.environ["POLARS_MAX_THREADS"] = "1"

import re
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import measure
import numpy as np
import polars as pl

from millstream.columns.index import KeyIndex
from millstream.columns.kernels.loading import chosen
from millstream.columns.kernels.scatter import SlotColumn
from millstream.operators.frames.tokenize import tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

BATCH_ROWS = 65_536
FULL_KEYS, QUICK_KEYS = (100, 100_000, 10_000_000), (100, 100_000)
FULL_BYTES, QUICK_BYTES = 40_000_000, 5_000_000
BLOCK_BYTES = 1 << 20
WORD = re.compile(r"\w+")
TARGET_KEYS, TARGETS_NS = 100_000, {"str": 60, "int": 40}


class Sums(Protocol):
    """Sums of values by key, kept from batch to batch."""

    def add(self, batch: pl.DataFrame) -> None:
        """Add the values of a batch."""

    def result(self) -> tuple[int, int]:
        """Return how many keys there are and the sum of everything."""


class IndexSums:
    """Slots by the native index, sums in a NumPy column."""

    def __init__(self, dtype: pl.DataType, keys: int) -> None:
        self.index = KeyIndex({"key": dtype}, engine="native")
        self._sums = slot_column(keys)

    def add(self, batch: pl.DataFrame) -> None:
        """Add the values of a batch."""
        slots = self.index.slots(batch)
        self._sums.add(slots, batch["value"].to_numpy())

    def result(self) -> tuple[int, int]:
        """Return how many keys there are and the sum of everything."""
        return len(self.index), int(self._sums.head(len(self.index)).sum())


def slot_column(entries: int = 0) -> SlotColumn:
    """Return zeros by slot."""
    kernels = chosen("scatter", "native")
    assert kernels is not None
    column = SlotColumn(kernels, np.int64)
    column.reserve(entries)
    return column


class PolarsSums:
    """Every batch summed by Polars, and merged by Polars into all that came before."""

    def __init__(self) -> None:
        self._sums: pl.DataFrame | None = None

    def add(self, batch: pl.DataFrame) -> None:
        """Add the values of a batch."""
        part = batch.group_by("key").agg(pl.col("value").sum())
        if self._sums is not None:
            both = pl.concat([self._sums, part])
            part = both.group_by("key").agg(pl.col("value").sum())
        self._sums = part

    def result(self) -> tuple[int, int]:
        """Return how many keys there are and the sum of everything."""
        assert self._sums is not None
        return self._sums.height, int(self._sums["value"].sum())


class DictSums:
    """One step of Python per row."""

    def __init__(self) -> None:
        self._sums: dict[object, int] = {}

    def add(self, batch: pl.DataFrame) -> None:
        """Add the values of a batch."""
        sums = self._sums
        keys, values = batch["key"].to_list(), batch["value"].to_list()
        for key, value in zip(keys, values, strict=True):
            sums[key] = sums.get(key, 0) + value

    def result(self) -> tuple[int, int]:
        """Return how many keys there are and the sum of everything."""
        return len(self._sums), sum(self._sums.values())


@dataclass(slots=True)
class Findings:
    """What the cases have found out so far."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    figures: list[measure.Figure] = field(default_factory=list)


def main() -> None:
    """Measure all cases."""
    options = measure.arguments(__doc__ or "").parse_args()
    for family in ("index", "scatter", "tokens"):
        chosen(family, "native")
    findings = Findings()
    all_keys = QUICK_KEYS if options.quick else FULL_KEYS
    for kind in ("str", "int"):
        for keys in all_keys:
            sum_by_key(kind, keys, options.rounds, findings)
    path = measure.written_text(
        options.data, QUICK_BYTES if options.quick else FULL_BYTES
    )
    text = path.read_bytes()
    split_text(text, options.rounds, findings)
    measure.finish(
        measure.Report(
            name="key_index",
            is_quick=options.quick,
            sizes={"rows a batch": BATCH_ROWS, "bytes of text": len(text)},
            samples_unit="ns",
            samples=findings.samples,
            figures=findings.figures,
        )
    )


def batch_of(numbers: NDArray[np.int64], kind: str) -> pl.DataFrame:
    """Return a batch of rows whose keys are these numbers, spread or spelled out."""
    values = numbers % 1000
    keys = pl.Series("key", numbers * 7919)
    if kind == "str":
        keys = ("k" + keys.cast(pl.String)).alias("key")
    return pl.DataFrame([keys, pl.Series("value", values)])


def every_key(keys: int, kind: str) -> Iterator[pl.DataFrame]:
    """Return batches that hold each key once, in order."""
    for start in range(0, keys, BATCH_ROWS):
        yield batch_of(np.arange(start, min(keys, start + BATCH_ROWS)), kind)


def sum_by_key(kind: str, keys: int, rounds: int, findings: Findings) -> None:
    """Measure sums by this many keys, when all of them are known."""
    dtype = pl.String() if kind == "str" else pl.Int64()
    own = IndexSums(dtype, keys)
    case = f"{keys:,} {kind} keys"
    contestants: dict[str, Sums] = {
        f"{case}: key index": own,
        f"{case}: Polars": PolarsSums(),
        f"{case}: dict": DictSums(),
    }
    longest_ms = {
        name: max(cpu_ns(sums.add, batch) for batch in every_key(keys, kind)) / 1e6
        if sums is own
        else filled(sums, keys, kind)
        for name, sums in contestants.items()
    }
    rng = np.random.default_rng(keys)
    batches = [
        batch_of(rng.integers(0, keys, BATCH_ROWS), kind)
        for _ in range(20 if keys <= TARGET_KEYS else 3)
    ]

    def nanoseconds(name: str) -> float:
        add = contestants[name].add
        spent_ns = [cpu_ns(add, batch) for batch in batches]
        return statistics.median(spent_ns) / BATCH_ROWS

    samples = measure.interleaved(rounds, contestants, nanoseconds)
    for name, sums in contestants.items():
        measure.check(name, sums.result(), own.result())
    findings.samples.update(samples)
    median_ns = statistics.median(samples[f"{case}: key index"])
    target_ns = TARGETS_NS[kind] if keys == TARGET_KEYS else None
    findings.figures += [
        measure.Figure(f"sum, {case}", median_ns, "ns", "at most", target_ns),
        measure.Figure(f"rate, {case}", 1e3 / median_ns, "M rows/s"),
        measure.Figure(f"memory, {case}", own.index.nbytes / keys, "B a key"),
        measure.at_most(
            f"longest call, {case}", longest_ms[f"{case}: key index"], "ms", 50
        ),
    ]


def cpu_ns(work: Callable[..., object], *args: object) -> int:
    """Return what a call costs this process, on all of its threads."""
    started_ns = time.process_time_ns()
    work(*args)
    return time.process_time_ns() - started_ns


def filled(sums: Sums, keys: int, kind: str) -> float:
    """Make all keys known to a peer, in as few steps as possible."""
    sums.add(pl.concat(every_key(keys, kind)))
    return 0.0


def split_text(text: bytes, rounds: int, findings: Findings) -> None:
    """Measure splitting into words, and counting them."""
    blocks = list(blocks_of(text))
    lines = [pl.DataFrame({"line": block.decode().split("\n")}) for block in blocks]
    programs: dict[str, Callable[[], int]] = {
        "tokens": lambda: sum(len(tokens(block)) for block in blocks),
        "tokens, Polars": lambda: sum(len(polars_tokens(rows)) for rows in lines),
        "tokens, re": lambda: sum(len(words(block)) for block in blocks),
        "word count": lambda: count_by_index(blocks),
        "word count, Counter": lambda: count_by_counter(blocks),
    }
    expected = programs["tokens, re"]()

    def nanoseconds(name: str) -> float:
        found: list[int] = []
        spent_ns = cpu_ns(lambda: found.append(programs[name]()))
        measure.check(name, found, [expected])
        return spent_ns / len(text)

    samples = measure.interleaved(rounds, programs, nanoseconds)
    findings.samples.update({f"{name}, a byte": s for name, s in samples.items()})
    rates = {name: 1e3 / statistics.median(taken) for name, taken in samples.items()}
    findings.figures += [
        measure.at_least("tokens", rates.pop("tokens"), "MB/s", 250),
        *(measure.Figure(name, rate, "MB/s") for name, rate in rates.items()),
    ]


def blocks_of(text: bytes) -> Iterator[bytes]:
    """Cut text into blocks of whole lines."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + BLOCK_BYTES)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def words(block: bytes) -> list[str]:
    """Split with `re`."""
    return [word.lower() for word in WORD.findall(block.decode())]


def polars_tokens(rows: pl.DataFrame) -> pl.Series:
    """Split with the expressions of Polars."""
    found = pl.col("line").str.extract_all(r"\w+").explode().drop_nulls()
    return rows.select(found.str.to_lowercase()).to_series()


def count_by_index(blocks: list[bytes]) -> int:
    """Count words by slot; return how many there are."""
    index = KeyIndex({"word": pl.String()}, engine="native")
    counts = slot_column()
    for block in blocks:
        slots = index.slots(tokens(block).to_frame("word"))
        counts.reserve(len(index))
        counts.count(slots)
    return int(counts.head(len(index)).sum())


def count_by_counter(blocks: list[bytes]) -> int:
    """Count words in a Counter; return how many there are."""
    counts: Counter[str] = Counter()
    for block in blocks:
        counts.update(words(block))
    return counts.total()


if __name__ == "__main__":
    main()
