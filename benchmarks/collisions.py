"""Three questions about a million accidents: frames against PySpark, Polars and DuckDB.

1.  How many lethal accidents were there in each week?
2.  How many accidents name a contributing factor, and what percentage was lethal?  An
    accident has up to five factors and counts once for each different one.
3.  How many accidents were there in each week and borough, and how many of them were
    lethal on average?

A week is its Monday.  An empty borough is a borough; an empty factor is none.  Every
contestant reads and parses the file once, shares what it keeps of it between the three
questions, and hands all rows of the answers to this process; every answer of every
round must be the same.

Millstream does it in one flow, Polars by one `collect_all` of the very same expressions;
neither makes lists of the factors, which takes Polars several times as long as nulls
in place of the repeated ones.  PySpark caches what the questions share, as its guide
says to do, and DuckDB has a table in memory.

All Spark contestants share one ``local[2]`` session in which each has run before; Polars
and DuckDB run alone, in this process, on all cores.  Lines of code are those of the
functions that answer, without docstrings, as in Table I of the paper this follows.

    python benchmarks/collisions.py [--quick]
"""

from __future__ import annotations

import ast
import csv
import hashlib
import inspect
import operator
import statistics
import textwrap
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import measure
import polars as pl
import word_count
from generate_collisions import (
    BOROUGH,
    COLUMNS,
    DATE,
    FACTORS,
    KILLED,
    written_collisions,
)
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    Rows = Iterable[Sequence[Any]]
    Answer = Callable[[Path], Sequence[Rows]]

FULL_ROWS, QUICK_ROWS, WARM_UP_ROWS = 1_000_000, 20_000, 5_000
MILLSTREAM, POLARS, DUCKDB = "Millstream", "Polars alone", "DuckDB alone"
DATAFRAME, RDD = "PySpark DataFrame", "PySpark RDD"

SCHEMA = dict.fromkeys(COLUMNS, pl.String) | {KILLED: pl.Int64}
SPARK_SCHEMA = ", ".join(
    f"`{name}` {'BIGINT' if name == KILLED else 'STRING'}" for name in COLUMNS
)
DUCKDB_SCHEMA = dict.fromkeys(COLUMNS, "VARCHAR") | {KILLED: "BIGINT"}


def main() -> None:
    """Measure all contestants and print how they compare."""
    options = measure.arguments(__doc__ or "").parse_args()
    rows = QUICK_ROWS if options.quick else FULL_ROWS
    crashes = written_collisions(options.data, rows)
    small = written_collisions(options.data, WARM_UP_ROWS)
    spark = word_count.session()
    try:
        answers = contestants(spark)
        measured(2, answers, small)
        samples = measured(options.rounds, answers, crashes)
    finally:
        spark.stop()
    measure.finish(
        measure.Report(
            name="collisions",
            is_quick=options.quick,
            sizes={
                "rows": rows,
                "bytes": crashes.stat().st_size,
                "workers": word_count.WORKERS,
            },
            samples_unit="s",
            samples=samples,
            figures=[*figures(samples), *lines_of_code()],
        )
    )


def contestants(spark: SparkSession) -> dict[str, Answer]:
    """Return every way to answer, by its name."""
    return {
        DATAFRAME: lambda crashes: answered_by_dataframe(spark, crashes),
        RDD: lambda crashes: answered_by_rdd(spark, crashes),
        MILLSTREAM: lambda crashes: answered_by_millstream(spark, crashes),
        POLARS: answered_by_polars,
        DUCKDB: answered_by_duckdb,
    }


def measured(
    rounds: int, answers: dict[str, Answer], crashes: Path
) -> dict[str, list[float]]:
    """Return the times of all contestants, whose answers were all the same."""
    results: dict[str, list[str]] = {}

    def seconds(name: str) -> float:
        seconds, found = measure.timed(lambda: answers[name](crashes))
        digests = [digest(rows) for rows in found]
        measure.check(name, digests, results.setdefault(DATAFRAME, digests))
        return seconds

    return measure.interleaved(rounds, answers, seconds)


def digest(rows: Rows) -> str:
    """Return a few words that are the same for the same rows in any order only."""
    lines = sorted("\t".join(map(written, row)) for row in rows)
    checksum = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return f"{len(lines)} rows, digest {checksum}"


def written(value: object) -> str:
    """Write a value as all contestants have to."""
    return f"{value:.9f}" if isinstance(value, float) else str(value)


def figures(samples: dict[str, list[float]]) -> list[measure.Figure]:
    """Compare the medians."""
    median = {name: statistics.median(times) for name, times in samples.items()}
    ours = median[MILLSTREAM]
    return [
        measure.at_least(
            f"{MILLSTREAM}, faster than {DATAFRAME}", median[DATAFRAME] / ours, "x", 5
        ),
        measure.at_most(
            f"{MILLSTREAM}, time of {POLARS}", ours / median[POLARS], "x", 1.3
        ),
        measure.Figure(f"{MILLSTREAM}, faster than {RDD}", median[RDD] / ours, "x"),
        measure.Figure(f"{MILLSTREAM}, time of {DUCKDB}", ours / median[DUCKDB], "x"),
    ]


def lines_of_code() -> list[measure.Figure]:
    """Count the lines of what each contestant needs for its answers."""
    functions: dict[str, list[Callable[..., Any]]] = {
        MILLSTREAM: [answered_by_millstream, needed, queries, unpivoted],
        DATAFRAME: [answered_by_dataframe],
        RDD: [answered_by_rdd, parsed, summed, shares],
        POLARS: [answered_by_polars, needed, queries, unpivoted],
        DUCKDB: [answered_by_duckdb],
    }
    return [
        measure.Figure(f"{name}, lines of code", sum(map(line_count, its)), "lines")
        for name, its in functions.items()
    ]


def line_count(function: Callable[..., Any]) -> int:
    """Count the lines of a function that are not blank, comment or docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    docstring = definition.body[0]
    assert docstring.end_lineno is not None
    lines = source.splitlines()
    del lines[docstring.lineno - 1 : docstring.end_lineno]
    texts = [line.strip() for line in lines]
    return sum(1 for text in texts if text and not text.startswith("#"))


def needed() -> list[pl.Expr]:
    """Return the columns that the questions need; a factor named before is null."""
    week = pl.col(DATE).str.to_date("%m/%d/%Y").dt.truncate("1w").alias("week")
    columns = [pl.col(BOROUGH), week, (pl.col(KILLED) > 0).alias("is_lethal")]
    for number, name in enumerate(FACTORS):
        factor, earlier = pl.col(name), map(pl.col, FACTORS[:number])
        is_new = pl.all_horizontal(
            factor.is_not_null(), *map(factor.ne_missing, earlier)
        )
        columns.append(pl.when(is_new).then(factor).alias(name))
    return columns


def queries(crashes: Any, factors: Any) -> list[Any]:
    """Ask the three questions, of a `millstream.Frame` or a `polars.LazyFrame` alike."""
    count, lethal = pl.len().alias("count"), pl.col("is_lethal").sum()
    return [
        crashes.filter(pl.col("is_lethal")).group_by("week").agg(count),
        factors.filter(pl.col("factor").is_not_null())
        .group_by("factor")
        .agg(count, percentage=100 * lethal / pl.len()),
        crashes.group_by("week", BOROUGH).agg(count, average=lethal / pl.len()),
    ]


def unpivoted(crashes: Any) -> Any:
    """Make a row of every factor of every accident."""
    rows = crashes.unpivot(FACTORS, index="is_lethal", value_name="factor")
    return rows.select("is_lethal", "factor")


def answered_by_millstream(spark: SparkSession, path: Path) -> list[Rows]:
    """Answer in one flow, whose workers read the file once."""
    flow = ms.Flow("collisions")
    crashes = flow.read_csv(path, schema=SCHEMA).select(needed())
    asked = queries(crashes, unpivoted(crashes))
    answers = [query.collect() for query in asked]
    flow.run(spark=spark, workers=word_count.WORKERS)
    return [answer.result().rows() for answer in answers]


def answered_by_polars(path: Path) -> list[Rows]:
    """Answer with the streaming engine of Polars, which finds out what is shared."""
    crashes = pl.scan_csv(path, schema=SCHEMA).select(needed())
    asked = queries(crashes, unpivoted(crashes))
    answers = pl.collect_all(asked, engine="streaming")
    return [answer.rows() for answer in answers]


def answered_by_dataframe(spark: SparkSession, crashes: Path) -> list[Rows]:
    """Answer with expressions only, so that no row reaches Python."""
    rows = spark.read.csv(str(crashes), schema=SPARK_SCHEMA, header=True)
    day = F.to_date(DATE, "MM/dd/yyyy")
    shared = rows.select(
        *(BOROUGH, *FACTORS),
        F.date_trunc("week", day).cast("date").alias("week"),
        (F.col(KILLED) > 0).alias("is_lethal"),
    ).cache()
    distinct = F.explode(F.array_distinct(F.array(*FACTORS))).alias("factor")
    factors = shared.select("is_lethal", distinct).dropna(subset="factor")
    count, lethal = F.count("*"), F.count_if("is_lethal")
    answers = [
        shared.where("is_lethal").groupBy("week").agg(count),
        factors.groupBy("factor").agg(count, 100 * lethal / count),
        shared.groupBy("week", BOROUGH).agg(count, lethal / count),
    ]
    collected = [answer.collect() for answer in answers]
    shared.unpersist()
    return collected


def answered_by_rdd(spark: SparkSession, crashes: Path) -> list[Rows]:
    """Answer as the programming guide of Spark does, in Python."""
    lines = spark.sparkContext.textFile(str(crashes), word_count.WORKERS)
    header = ",".join(COLUMNS)
    rows = lines.filter(lambda line: line != header).mapPartitions(csv.reader)
    shared = rows.map(parsed).cache()
    lethal = shared.filter(operator.itemgetter(3)).map(lambda crash: (crash[0], 1))
    factors = shared.flatMap(
        lambda crash: [(factor, (1, crash[3])) for factor in crash[2]]
    )
    boroughs = shared.map(lambda crash: ((crash[0], crash[1]), (1, crash[3])))
    answers = [
        lethal.reduceByKey(operator.add).collect(),
        shares(factors.reduceByKey(summed).collect(), 100),
        [
            (week, borough, *counts)
            for (week, borough), *counts in shares(
                boroughs.reduceByKey(summed).collect(), 1
            )
        ],
    ]
    shared.unpersist()
    return answers


def parsed(row: list[str]) -> tuple[date, str | None, set[str], int]:
    """Return week, borough, factors and whether it was lethal, of a row of the file."""
    month, day, year = map(int, row[COLUMNS.index(DATE)].split("/"))
    crashed = date(year, month, day)
    week = crashed - timedelta(days=crashed.weekday())
    factors = {row[COLUMNS.index(factor)] for factor in FACTORS} - {""}
    is_lethal = int(row[COLUMNS.index(KILLED)] or 0) > 0
    return week, row[COLUMNS.index(BOROUGH)] or None, factors, int(is_lethal)


def summed(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Add two counts of accidents and lethal ones."""
    return one[0] + other[0], one[1] + other[1]


def shares(counts: list[Any], factor: int) -> list[tuple[Any, int, float]]:
    """Turn counts of lethal accidents into shares of all, times a factor."""
    return [(key, n, factor * lethal / n) for key, (n, lethal) in counts]


def answered_by_duckdb(crashes: Path) -> list[Rows]:
    """Answer in SQL."""
    factors = ", ".join(f'"{factor}"' for factor in FACTORS)
    with duckdb.connect() as database:
        database.execute(f"""
            create table crashes as
            select date_trunc('week', strptime("{DATE}", '%m/%d/%Y'))::date as week,
                   "{BOROUGH}" as borough,
                   list_distinct([{factors}]) as factors,
                   "{KILLED}" > 0 as is_lethal
            from read_csv('{crashes}', columns={DUCKDB_SCHEMA}, header=true,
                          delim=',', quote='"', escape='"', auto_detect=false)
        """)  # noqa: S608 - our own path
        asked = [
            "select week, count(*) from crashes where is_lethal group by week",
            """select factor, count(*), 100 * count_if(is_lethal) / count(*)
               from (select unnest(factors) as factor, is_lethal from crashes)
               group by factor""",
            """select week, borough, count(*), count_if(is_lethal) / count(*)
               from crashes group by week, borough""",
        ]
        return [database.sql(query).fetchall() for query in asked]


if __name__ == "__main__":
    main()
