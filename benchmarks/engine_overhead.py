"""What the engine costs over one hand-written comprehension per batch.

Everything runs in this process and one worker.  Both sides read the same batches with
the same source of Millstream's, so that only the engine differs: its stages, channels,
aggregation and the way of the result to the driver.

    python benchmarks/engine_overhead.py [--quick]
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

import measure

import millstream as ms
from millstream.connectors.iterable import ParallelSource
from millstream.connectors.text import TextSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FULL_BYTES, QUICK_BYTES = 40_000_000, 5_000_000
FULL_NUMBERS, QUICK_NUMBERS = 20_000_000, 2_000_000
OVERHEAD_TARGET = 10
CONFIG = ms.Config()
WORDS_ENGINE, WORDS_BY_HAND = "word count, engine", "word count, by hand"
CHAIN_ENGINE, CHAIN_BY_HAND = "three lambdas, engine", "three lambdas, by hand"

WORD = re.compile(r"\w+")
TRIPLE: Callable[[int], int] = lambda number: number * 3  # noqa: E731 - as users do
IS_EVEN: Callable[[int], bool] = lambda number: number % 2 == 0  # noqa: E731
NEXT: Callable[[int], int] = lambda number: number + 1  # noqa: E731


def main() -> None:
    """Measure both programs, both ways."""
    options = measure.arguments(__doc__ or "").parse_args()
    text = measure.written_text(
        options.data, QUICK_BYTES if options.quick else FULL_BYTES
    )
    numbers = QUICK_NUMBERS if options.quick else FULL_NUMBERS
    programs: dict[str, Callable[[], Any]] = {
        WORDS_BY_HAND: lambda: count_by_hand(text),
        WORDS_ENGINE: lambda: count_by_engine(text),
        CHAIN_BY_HAND: lambda: chain_by_hand(numbers),
        CHAIN_ENGINE: lambda: chain_by_engine(numbers),
    }
    expected = {
        WORDS_ENGINE: programs[WORDS_BY_HAND](),
        CHAIN_ENGINE: programs[CHAIN_BY_HAND](),
    }

    def seconds(name: str) -> float:
        seconds, found = measure.timed(programs[name])
        if found != expected.get(name, found):
            measure.check(name, "another result", "that of the loop by hand")
        return seconds

    samples = measure.interleaved(options.rounds, programs, seconds)
    measure.finish(
        measure.Report(
            name="engine_overhead",
            is_quick=options.quick,
            sizes={"bytes": text.stat().st_size, "numbers": numbers, "workers": 1},
            samples_unit="s",
            samples=samples,
            figures=[
                overhead("word count", samples[WORDS_ENGINE], samples[WORDS_BY_HAND]),
                overhead(
                    "map, filter, map", samples[CHAIN_ENGINE], samples[CHAIN_BY_HAND]
                ),
            ],
        )
    )


def overhead(name: str, engine: list[float], by_hand: list[float]) -> measure.Figure:
    """Compare two medians."""
    ratio = statistics.median(engine) / statistics.median(by_hand)
    return measure.at_most(
        f"engine overhead, {name}", 100 * (ratio - 1), "%", OVERHEAD_TARGET
    )


def batches(source: ms.Source[Any]) -> Iterator[list[Any]]:
    """Read a source as the engine does, in one task."""
    for split in source.splits(1):
        reader = source.open(split, 0, CONFIG)
        while (rows := reader.read(CONFIG.source_batch_rows)) is not None:
            yield rows
        reader.close()


def count_by_hand(text: Path) -> dict[str, int]:
    """Count words with one comprehension per batch."""
    counts: Counter[str] = Counter()
    findall = WORD.findall
    for lines in batches(TextSource(text)):
        counts.update([word.lower() for line in lines for word in findall(line)])
    return counts


def count_by_engine(text: Path) -> dict[str, int]:
    """Count words as a flow."""
    flow = ms.Flow("word-count")
    words = flow.read_text(text).flat_map(WORD.findall)
    counts = words.group_by(str.lower).count().collect(dict)
    flow.run(on="local", workers=1)
    return counts.result()


def chain_by_hand(numbers: int) -> int:
    """Put numbers through three lambdas, in one comprehension per batch."""
    triple, is_even, following = TRIPLE, IS_EVEN, NEXT
    count = 0
    for rows in batches(ParallelSource(lambda _rank, _size: range(numbers))):
        count += len([following(n) for row in rows if is_even(n := triple(row))])
    return count


def chain_by_engine(numbers: int) -> int:
    """Put numbers through three lambdas, as a flow."""
    flow = ms.Flow("three-lambdas")
    source = flow.from_parallel(lambda _rank, _size: range(numbers))
    count = source.map(TRIPLE).filter(IS_EVEN).map(NEXT).count()
    flow.run(on="local", workers=1)
    return count.result()


if __name__ == "__main__":
    main()
