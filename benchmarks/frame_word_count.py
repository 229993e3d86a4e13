r"""Word count over 200 MB of text with columns: frames against PySpark, Polars and DuckDB.

The same text, words, session and rules as in ``word_count.py``; no contestant calls a
Python function per row.  Millstream takes part twice: with Polars' string expressions,
and with its own `tokens`.  Polars and DuckDB run alone, in this process, on all cores.

    python benchmarks/frame_word_count.py [--quick]
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import duckdb
import measure
import polars as pl
import word_count

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TOKENS, EXPRESSIONS = "Millstream, tokens", "Millstream, expressions"
DATAFRAME, POLARS, DUCKDB = "PySpark DataFrame", "Polars alone", "DuckDB alone"
PATTERN = r"\w+"


def main() -> None:
    """Measure all contestants and print how they compare."""
    options = measure.arguments(__doc__ or "").parse_args()
    quick, full = word_count.QUICK_BYTES, word_count.FULL_BYTES
    text = measure.written_text(options.data, quick if options.quick else full)
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
            name="frame_word_count",
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
        DATAFRAME: lambda text: word_count.count_by_dataframe(spark, text),
        TOKENS: lambda text: count_by_tokens(spark, text),
        EXPRESSIONS: lambda text: count_by_expressions(spark, text),
        POLARS: count_by_polars,
        DUCKDB: count_by_duckdb,
    }


def figures(samples: dict[str, list[float]]) -> list[measure.Figure]:
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
        measure.at_least(
            f"{TOKENS}, faster than {POLARS}", median[POLARS] / median[TOKENS], "x", 1
        ),
        measure.Figure(
            f"{TOKENS}, faster than {DUCKDB}", median[DUCKDB] / median[TOKENS], "x"
        ),
    ]


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
