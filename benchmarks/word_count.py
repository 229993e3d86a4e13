r"""Word count over 200 MB of text: Millstream, PySpark and hand-written Python.

A word is what ``\w+`` matches, in lower case.  Every contestant reads the same file on
two cores and hands a dictionary of all counts to the driver; every dictionary of every
round must be the same.  All Spark contestants share one ``local[2]`` session that has
run a small word count of each of them before, and the two processes of the hand-written
one are there before the clock starts: only job time is measured.  Millstream on
processes starts its two processes inside the measured time.

The hand-written one reads half of the file in each process, in blocks of whole lines
about as large as those of Millstream's text source, and has one comprehension per block.

    python benchmarks/word_count.py [--quick]
"""

from __future__ import annotations

import hashlib
import multiprocessing
import operator
import os
import re
import statistics
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import measure
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.pool import Pool
    from pathlib import Path

    Count = Callable[[Path], dict[str, int]]

WORKERS = 2
FULL_BYTES, QUICK_BYTES, WARM_UP_BYTES = 200_000_000, 20_000_000, 1_000_000
BLOCK_BYTES = ms.Config().source_block_bytes
WORD = re.compile(r"\w+")
ON_SPARK, ON_PROCESSES = "Millstream on Spark", "Millstream on processes"
RDD, DATAFRAME = "PySpark RDD", "PySpark DataFrame"
BY_HAND = "multiprocessing by hand"


def main() -> None:
    """Measure all contestants and print how they compare."""
    options = measure.arguments(__doc__ or "").parse_args()
    size_bytes = QUICK_BYTES if options.quick else FULL_BYTES
    text = measure.written_text(options.data, size_bytes)
    small = measure.written_text(options.data, WARM_UP_BYTES)
    # The processes are forked before there is a JVM with its threads.
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        spark = session()
        try:
            counts = contestants(spark, pool)
            measured(1, counts, small)
            samples = measured(options.rounds, counts, text)
        finally:
            spark.stop()
    measure.finish(
        measure.Report(
            name="word_count",
            is_quick=options.quick,
            sizes={"bytes": text.stat().st_size, "workers": WORKERS},
            samples_unit="s",
            samples=samples,
            figures=figures(samples),
        )
    )


def session(memory: str = "1g", slots: int = WORKERS) -> SparkSession:
    """Return a session for all, with as many shuffle partitions as it has cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master(f"local[{slots}]")
        .appName("word_count")
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(slots))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def contestants(spark: SparkSession, pool: Pool) -> dict[str, Count]:
    """Return every way to count, by its name."""
    return {
        BY_HAND: lambda text: count_by_hand(pool, text),
        ON_SPARK: lambda text: count_by_millstream(text, spark=spark),
        RDD: lambda text: count_by_rdd(spark, text),
        DATAFRAME: lambda text: count_by_dataframe(spark, text),
        ON_PROCESSES: lambda text: count_by_millstream(text, on="processes"),
    }


def measured(
    rounds: int, counts: dict[str, Count], text: Path
) -> dict[str, list[float]]:
    """Return the times of all contestants, whose results were all the same."""
    results: dict[str, str] = {}

    def seconds(name: str) -> float:
        seconds, found = measure.timed(lambda: counts[name](text))
        expected = results.setdefault(BY_HAND, digest(found))
        measure.check(name, digest(found), expected)
        return seconds

    return measure.interleaved(rounds, counts, seconds)


def digest(counts: dict[str, int]) -> str:
    """Return a few words that are the same for the same counts only."""
    lines = "".join(f"{word} {count}\n" for word, count in sorted(counts.items()))
    checksum = hashlib.sha256(lines.encode()).hexdigest()[:16]
    return f"{len(counts)} words, {sum(counts.values())} in all, digest {checksum}"


def figures(samples: dict[str, list[float]]) -> list[measure.Figure]:
    """Compare the medians."""
    median = {name: statistics.median(times) for name, times in samples.items()}
    ours, by_hand = median[ON_SPARK], median[BY_HAND]
    return [
        measure.at_least(
            f"{ON_SPARK} is faster than {RDD}", median[RDD] / ours, "x", 3
        ),
        measure.at_least(
            f"{ON_SPARK} is faster than {DATAFRAME}", median[DATAFRAME] / ours, "x", 2.5
        ),
        measure.at_most(f"{ON_SPARK}, time of {BY_HAND}", ours / by_hand, "x", 1.25),
        measure.Figure(
            f"{ON_PROCESSES}, time of {BY_HAND}", median[ON_PROCESSES] / by_hand, "x"
        ),
    ]


def count_by_millstream(text: Path, **launch: Any) -> dict[str, int]:
    """Count as a flow."""
    flow = ms.Flow("word-count")
    words = flow.read_text(text).flat_map(WORD.findall)
    counts = words.group_by(str.lower).count().collect(dict)
    flow.run(workers=WORKERS, **launch)
    return counts.result()


def count_by_rdd(spark: SparkSession, text: Path) -> dict[str, int]:
    """Count as the programming guide of Spark does, with the same closures."""
    words = spark.sparkContext.textFile(str(text)).flatMap(WORD.findall)
    pairs = words.map(lambda word: (word.lower(), 1))
    return dict(pairs.reduceByKey(operator.add).collect())


def count_by_dataframe(spark: SparkSession, text: Path) -> dict[str, int]:
    """Count with expressions only, so that no row reaches Python."""
    matches = F.regexp_extract_all(F.lower("value"), F.lit(r"(\w+)"), 1)
    words = spark.read.text(str(text)).select(F.explode(matches).alias("word"))
    return {row[0]: row[1] for row in words.groupBy("word").count().collect()}


def count_by_hand(pool: Pool, text: Path) -> dict[str, int]:
    """Count each half in a process and merge."""
    size_bytes = text.stat().st_size
    with text.open("rb") as file:
        file.seek(size_bytes // WORKERS)
        file.readline()
        middle = file.tell()
    halves = [(text, 0, middle), (text, middle, size_bytes)]
    first, second = pool.starmap(count_range, halves, chunksize=1)
    first.update(second)
    return first


def count_range(text: Path, start: int, end: int) -> Counter[str]:
    """Count the words between two line ends."""
    counts: Counter[str] = Counter()
    findall = WORD.findall
    with text.open("rb") as file:
        file.seek(start)
        while (left_bytes := end - file.tell()) > 0:
            block = file.read(min(BLOCK_BYTES, left_bytes))
            if file.tell() < end:
                block += file.readline()
            lines = block.decode().split("\n")
            counts.update([word.lower() for line in lines for word in findall(line)])
    return counts


if __name__ == "__main__":
    main()
