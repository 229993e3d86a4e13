r"""Count windows per word over 200 MB of text: 10 occurrences, one window every 5.

A word is what ``\w+`` matches, in lower case.  Every contestant reads the same file and
hands a dictionary to the driver: how many full windows each word has had; every dictionary
of every round must be the same.  Plain Python and Polars run alone in this process, Polars
on all cores; the others share one ``local[2]`` session that has run a small text of each of
them before: only job time is measured.

Millstream, plain Python and PySpark make every window when its tenth word has come, and
count the windows.  As it does not matter here in which order words come, one can as well
count words and divide at the end: that is what Polars does, and one more contestant with
PySpark's data frames, for comparison.

    python benchmarks/win_word_count.py [--quick]
"""

from __future__ import annotations

import operator
import statistics
from collections import Counter
from typing import TYPE_CHECKING

import measure
import polars as pl
import word_count
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SIZE, SLIDE = 10, 5
PYTHON, POLARS = "plain Python", "Polars alone"
RDD, DATAFRAME = "PySpark RDD", "PySpark DataFrame"
DIVIDED = "PySpark DataFrame, counts divided"
ROWS, FRAMES = "Millstream, row closures", "Millstream, frames"
WORD = word_count.WORD


def main() -> None:
    """Measure all contestants and print how they compare."""
    options = measure.arguments(__doc__ or "").parse_args()
    size_bytes = word_count.QUICK_BYTES if options.quick else word_count.FULL_BYTES
    text = measure.written_text(options.data, size_bytes)
    small = measure.written_text(options.data, word_count.WARM_UP_BYTES)
    spark = word_count.session()
    try:
        counts = contestants(spark)
        word_count.measured(2, counts, small)
        samples = word_count.measured(options.rounds, counts, text)
    finally:
        spark.stop()
    measure.finish(
        measure.Report(
            name="win_word_count",
            is_quick=options.quick,
            sizes={"bytes": text.stat().st_size, "workers": word_count.WORKERS},
            samples_unit="s",
            samples=samples,
            figures=figures(samples),
        )
    )


def contestants(spark: SparkSession) -> dict[str, word_count.Count]:
    """Return every way to count, by its name."""
    return {
        PYTHON: windows_by_python,
        ROWS: lambda text: windows_by_rows(spark, text),
        FRAMES: lambda text: windows_by_frames(spark, text),
        POLARS: windows_by_polars,
        DATAFRAME: lambda text: windows_by_dataframe(spark, text),
        DIVIDED: lambda text: divided_by_dataframe(spark, text),
        RDD: lambda text: windows_by_rdd(spark, text),
    }


def figures(samples: dict[str, list[float]]) -> list[measure.Figure]:
    """Compare the medians."""
    median = {name: statistics.median(times) for name, times in samples.items()}
    fastest = min((DATAFRAME, RDD), key=median.__getitem__)
    return [
        measure.at_least(
            f"{ROWS}, faster than {PYTHON}", median[PYTHON] / median[ROWS], "x", 1.7
        ),
        measure.at_least(
            f"{FRAMES}, faster than {fastest}",
            median[fastest] / median[FRAMES],
            "x",
            8,
        ),
        measure.at_least(
            f"{FRAMES}, faster than {POLARS}", median[POLARS] / median[FRAMES], "x", 1
        ),
        measure.Figure(
            f"{FRAMES}, faster than {DIVIDED}", median[DIVIDED] / median[FRAMES], "x"
        ),
    ]


def windows_by_python(text: Path) -> dict[str, int]:
    """Count in one process, one word after the other."""
    findall = WORD.findall
    with text.open() as lines:
        words = (word.lower() for line in lines for word in findall(line))
        return dict(windows_in(words))


def windows_by_rows(spark: SparkSession, text: Path) -> dict[str, int]:
    """Count as a flow of rows."""
    flow = ms.Flow("win-wc")
    words = flow.read_text(text).flat_map(WORD.findall).key_by(str.lower)
    windows = words.window(ms.windows.count(SIZE, SLIDE)).count()
    counts = windows.unkey().group_by(operator.itemgetter(0)).count().collect(dict)
    flow.run(spark=spark, workers=word_count.WORKERS)
    return counts.result()


def windows_by_frames(spark: SparkSession, text: Path) -> dict[str, int]:
    """Count as a flow of frames."""
    flow = ms.Flow("win-wc")
    words = flow.read_lines(text).tokens("line").group_by("line")
    windows = words.window(ms.windows.count(SIZE, SLIDE)).agg(n=pl.len())
    counts = windows.group_by("line").agg(pl.len()).collect()
    flow.run(spark=spark, workers=word_count.WORKERS)
    return dict(counts.result().iter_rows())


def windows_by_polars(text: Path) -> dict[str, int]:
    """Count with the streaming engine of Polars."""
    matches = pl.col("line").str.to_lowercase().str.extract_all(r"\w+")
    lines = pl.scan_lines(text, name="line")
    words = lines.select(line=matches).explode("line").drop_nulls()
    counts = words.group_by("line").len().filter(pl.col("len") >= SIZE)
    windows = counts.with_columns((pl.col("len") - SIZE) // SLIDE + 1)
    return dict(windows.collect(engine="streaming").iter_rows())


def windows_by_dataframe(spark: SparkSession, text: Path) -> dict[str, int]:
    """Give every occurrence of a word a number, and put it into its windows."""
    words = words_by_dataframe(spark, text)
    order = Window.partitionBy("word").orderBy(F.monotonically_increasing_id())
    number = F.row_number().over(order) - 1
    first = F.greatest(F.ceil((F.col("number") - SIZE + 1) / SLIDE), F.lit(0))
    last = F.floor(F.col("number") / SLIDE)
    numbered = words.select("word", number.alias("number"))
    inside = numbered.select("word", F.explode(F.sequence(first, last)).alias("window"))
    windows = inside.groupBy("word", "window").count().where(F.col("count") == SIZE)
    return {row[0]: row[1] for row in windows.groupBy("word").count().collect()}


def words_by_dataframe(spark: SparkSession, text: Path) -> DataFrame:
    """Return the words with expressions only, so that no row reaches Python."""
    matches = F.regexp_extract_all(F.lower("value"), F.lit(r"(\w+)"), 1)
    return spark.read.text(str(text)).select(F.explode(matches).alias("word"))


def divided_by_dataframe(spark: SparkSession, text: Path) -> dict[str, int]:
    """Count all occurrences, and divide."""
    words = words_by_dataframe(spark, text)
    counts = words.groupBy("word").count().where(F.col("count") >= SIZE)
    windows = F.floor((F.col("count") - SIZE) / SLIDE) + 1
    return {row[0]: row[1] for row in counts.select("word", windows).collect()}


def windows_by_rdd(spark: SparkSession, text: Path) -> dict[str, int]:
    """Bring every word to the partition of its key, and make the windows there."""
    words = spark.sparkContext.textFile(str(text)).flatMap(WORD.findall)
    pairs = words.map(lambda word: (word.lower(), None))
    keyed = pairs.partitionBy(word_count.WORKERS).keys()
    return dict(keyed.mapPartitions(windows_in).collect())


def windows_in(words: Iterable[str]) -> Iterable[tuple[str, int]]:
    """Return how many windows each of the words has."""
    counts: Counter[str] = Counter()
    windows: Counter[str] = Counter()
    for word in words:
        counts[word] = count = counts[word] + 1
        if count >= SIZE and not (count - SIZE) % SLIDE:
            windows[word] += 1
    return windows.items()


if __name__ == "__main__":
    main()
