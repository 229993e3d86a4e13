r"""Word count over 200 MB of text with columns: frames against PySpark, Polars and DuckDB.

The same text, words, session and rules as in ``word_count.py``; no contestant but the RDD
calls a Python function per row.  Millstream takes part twice: with Polars' string expressions,
and with its own `tokens`.  Polars and DuckDB run alone, in this process, on all cores.

Then Millstream counts five times as much text, with `tokens`: time and memory must not
grow faster than the text.  Memory is the largest resident set of each worker, added up;
pages that workers share count once for each.

Lines of code are those of the functions that count, without docstrings, as in Table I of
the paper this follows.

    python benchmarks/frame_word_count.py [--quick]
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import collisions
import duckdb
import measure
import polars as pl
import word_count

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

TOKENS, EXPRESSIONS = "Millstream, tokens", "Millstream, expressions"
LARGER = "Millstream, tokens, five times the text"
DATAFRAME, POLARS, DUCKDB = "PySpark DataFrame", "Polars alone", "DuckDB alone"
PATTERN = r"\w+"
TIMES_LARGER, TIMES_LONGER_MAX, MEMORY_GIB_MAX = 5, 5.5, 1.5


def main() -> None:
    """Measure all contestants and print how they compare."""
    options = measure.arguments(__doc__ or "").parse_args()
    size_bytes = word_count.QUICK_BYTES if options.quick else word_count.FULL_BYTES
    text = measure.written_text(options.data, size_bytes)
    large = measure.written_text(options.data, TIMES_LARGER * size_bytes)
    small = measure.written_text(options.data, word_count.WARM_UP_BYTES)
    spark = word_count.session()
    try:
        counts = contestants(spark)
        word_count.measured(2, counts, small)
        samples = word_count.measured(options.rounds, counts, text)
        forget_peaks()
        larger = word_count.measured(options.rounds, {TOKENS: counts[TOKENS]}, large)
        memory_gib = peak_gib()
    finally:
        spark.stop()
    samples[LARGER] = larger[TOKENS]
    measure.finish(
        measure.Report(
            name="frame_word_count",
            is_quick=options.quick,
            sizes={"bytes": text.stat().st_size, "workers": word_count.WORKERS},
            samples_unit="s",
            samples=samples,
            figures=[*figures(samples, memory_gib), *lines_of_code()],
        )
    )


def contestants(spark: SparkSession) -> dict[str, word_count.Count]:
    """Return every way to count, by its name."""
    return {
        DATAFRAME: lambda text: word_count.count_by_dataframe(spark, text),
        word_count.RDD: lambda text: word_count.count_by_rdd(spark, text),
        TOKENS: lambda text: count_by_tokens(spark, text),
        EXPRESSIONS: lambda text: count_by_expressions(spark, text),
        POLARS: count_by_polars,
        DUCKDB: count_by_duckdb,
    }


def figures(samples: dict[str, list[float]], memory_gib: float) -> list[measure.Figure]:
    """Compare the medians."""
    median = {name: statistics.median(times) for name, times in samples.items()}
    frame = median[DATAFRAME]
    return [
        measure.at_least(
            f"{EXPRESSIONS}, faster than {DATAFRAME}",
            frame / median[EXPRESSIONS],
            "x",
            8,
        ),
        measure.at_least(
            f"{TOKENS}, faster than {DATAFRAME}", frame / median[TOKENS], "x", 12
        ),
        measure.Figure(
            f"{TOKENS}, faster than {word_count.RDD}",
            median[word_count.RDD] / median[TOKENS],
            "x",
        ),
        measure.at_least(
            f"{TOKENS}, faster than {POLARS}", median[POLARS] / median[TOKENS], "x", 1
        ),
        measure.Figure(
            f"{TOKENS}, faster than {DUCKDB}", median[DUCKDB] / median[TOKENS], "x"
        ),
        measure.at_most(
            f"{LARGER}, time of {TOKENS}",
            median[LARGER] / median[TOKENS],
            "x",
            TIMES_LONGER_MAX,
        ),
        measure.at_most(
            f"{LARGER}, memory of all workers", memory_gib, "GiB", MEMORY_GIB_MAX
        ),
    ]


def lines_of_code() -> list[measure.Figure]:
    """Count the lines of what each contestant needs to count words."""
    functions: dict[str, list[Callable[..., Any]]] = {
        TOKENS: [count_by_tokens, counted],
        EXPRESSIONS: [count_by_expressions, counted],
        DATAFRAME: [word_count.count_by_dataframe],
        word_count.RDD: [word_count.count_by_rdd],
        POLARS: [count_by_polars],
        DUCKDB: [count_by_duckdb],
    }
    return [
        measure.Figure(
            f"{name}, lines of code", sum(map(collisions.line_count, its)), "lines"
        )
        for name, its in functions.items()
    ]


def forget_peaks() -> None:
    """Let the kernel forget how large the workers once were."""
    for process in worker_processes():
        (process / "clear_refs").write_text("5")


def peak_gib() -> float:
    """Return the largest resident sets of all workers, added up."""
    peaks_kib = [
        int(line.split()[1])
        for process in worker_processes()
        for line in (process / "status").read_text().splitlines()
        if line.startswith("VmHWM:")
    ]
    return sum(peaks_kib) / 2**20


def worker_processes() -> list[Path]:
    """Return the Python processes of Spark's tasks: the daemon's, which is below us."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        name, _, rest = status.read_text().rpartition(")")
        parents[int(name.split()[0])] = int(rest.split()[1])
    below = [pid for pid in parents if _depth(pid, parents) is not None]
    daemons = {pid for pid in below if _is_daemon(pid)}
    return [Path(f"/proc/{pid}") for pid in below if parents[pid] in daemons]


def _depth(pid: int, parents: dict[int, int]) -> int | None:
    """Return how far below this process another one is."""
    depth = 0
    while pid in parents:
        if pid == os.getpid():
            return depth
        pid, depth = parents[pid], depth + 1
    return None


def _is_daemon(pid: int) -> bool:
    return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()


def count_by_tokens(spark: SparkSession, text: Path) -> dict[str, int]:
    """Count as a flow of frames, cut into words by the compiled kernel."""
    flow = ms.Flow("word-count")
    words = flow.read_lines(text).tokens("line")
    return counted(flow, words, spark)


def count_by_expressions(spark: SparkSession, text: Path) -> dict[str, int]:
    """Count as a flow of frames, cut into words by Polars."""
    flow = ms.Flow("word-count")
    matches = pl.col("line").str.to_lowercase().str.extract_all(PATTERN)
    words = flow.read_lines(text).select(line=matches).explode("line")
    return counted(flow, words.filter(pl.col("line").is_not_null()), spark)


def counted(flow: ms.Flow, words: ms.Frame, spark: SparkSession) -> dict[str, int]:
    """Run the second half of both flows."""
    counts = words.group_by("line").agg(pl.len().alias("n")).collect()
    flow.run(spark=spark, workers=word_count.WORKERS)
    return dict(counts.result().iter_rows())


def count_by_polars(text: Path) -> dict[str, int]:
    """Count with the streaming engine of Polars."""
    matches = pl.col("line").str.to_lowercase().str.extract_all(PATTERN)
    lines = pl.scan_lines(text, name="line")
    words = lines.select(line=matches).explode("line").drop_nulls()
    counts = words.group_by("line").len().collect(engine="streaming")
    return dict(counts.iter_rows())


def count_by_duckdb(text: Path) -> dict[str, int]:
    """Count in SQL; a file of one column has a separator that no line contains."""
    query = f"""
        select word, count(*) from (
            select unnest(regexp_extract_all(lower(line), '{PATTERN}')) as word
            from read_csv('{text}', columns={{'line': 'VARCHAR'}}, header=false,
                          delim='\x01', quote='', escape='', auto_detect=false)
        ) group by word
    """  # noqa: S608 - our own path
    return dict(duckdb.sql(query).fetchall())


if __name__ == "__main__":
    main()
