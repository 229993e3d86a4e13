"""Every type that a Spark DataFrame and a frame share, there and back, on real Spark."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EDGES = {
    "boolean": ["true", "false"],
    "tinyint": ["-128", "127"],
    "smallint": ["-32768", "32767"],
    "int": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "float": ["'NaN'", "'-Infinity'", "-0.0", "1e-45"],
    "double": ["'NaN'", "'Infinity'", "-0.0", "4.9e-324", "0.1"],
    "decimal(38,18)": [f"'{'9' * 20}.{'9' * 18}'", f"'-0.{'0' * 17}1'"],
    "decimal(9,0)": ["999999999", "-1"],
    "string": ["''", "'ü\\u0000\\n😀'"],
    "binary": ["X''", "X'00ff80'"],
    "date": ["'0001-01-01'", "'1582-10-15'", "'1969-12-31'", "'9999-12-31'"],
    "timestamp": [
        "'1500-02-28 23:59:59.999999 UTC'",
        "'1969-12-31 23:59:59.999999 UTC'",
        "'2021-03-14 02:30:00'",  # does not exist in New York
        "'2021-11-07 05:30:00 UTC'",  # 01:30 in New York, for the first time
        "'2021-11-07 06:30:00 UTC'",  # 01:30 in New York, for the second time
    ],
    "timestamp_ntz": [
        "'1500-02-28 23:59:59.999999'",
        "'2021-03-14 02:30:00'",
        "'1969-12-31 23:59:59.999999'",
    ],
    "interval day to second": [
        "interval '-106751991 04:00:54.775808' day to second",
        "interval '0 00:00:00.000001' day to second",
    ],
}


@pytest.fixture
def odd_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session whose settings would bend times if they were followed."""
    odd = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    }
    before = {key: spark.conf.get(key) or "" for key in odd}
    for key, value in odd.items():
        spark.conf.set(key, value)
    yield spark
    assert {key: spark.conf.get(key) for key in odd} == odd
    for key, value in before.items():
        spark.conf.set(key, value)


def edges(spark: SparkSession) -> DataFrame:
    """Return every edge, and null, of every type: plain and in each kind of nesting."""
    typed = [
        [f"cast({edge} as {kind})" for edge in [*edges, "null"]]
        for kind, edges in EDGES.items()
    ]
    lines = zip_longest(*typed, fillvalue="null")
    values = ", ".join(f"({', '.join(line)})" for line in lines)
    names = [f"c{number}" for number in range(1, len(EDGES) + 1)]
    nested = [
        text.format(c=name)
        for name in names
        for text in (
            "array({c}, null) {c}_a",
            "if({c} is null, null, struct({c} x, map('k', {c}, '', null) m)) {c}_s",
        )
    ]
    empty = ["array() :: array<int> e_a", "map() :: map<int, string> e_m"]
    plain = spark.sql(f"select * from values {values} as t({', '.join(names)})")
    return plain.selectExpr("*", *nested, *empty)


def rows(frame: DataFrame) -> list[str]:
    return sorted(repr(row) for row in frame.collect())


def types(frame: DataFrame) -> list[tuple[str, str]]:
    return frame.dtypes


def test_every_edge_of_every_type_survives_whatever_the_session_says(
    odd_session: SparkSession,
) -> None:
    """Zones, clock changes, old calendars, decimals, nested columns and nulls."""
    before = edges(odd_session)

    flow = ms.Flow("there-and-back")
    handle = flow.from_spark(before).to_spark()
    flow.run(on="local", workers=2)
    after = handle.result()

    assert types(after) == types(before)
    assert rows(after) == rows(before)


def test_empty_frames_keep_their_types(spark: SparkSession) -> None:
    """No rows, in no files at all or in files without rows."""
    before = edges(spark).limit(0)
    flow = ms.Flow("empty")
    after = flow.from_spark(before).to_spark()
    seen = flow.from_spark(before).collect()
    flow.run(on="local", workers=2)

    assert types(after.result()) == types(before)
    assert after.result().count() == 0
    assert seen.result().schema["c13"] == pl.Datetime("us", "UTC")


@pytest.mark.parametrize(
    ("query", "column", "kind"),
    [
        ("select parse_json('1') x", "x", "variant"),
        ("select interval '1' month x", "x", "interval month"),
        ("select make_interval(1) x", "x", "interval"),
        ("select null x", "x", "void"),
        ("select 'a' collate UNICODE_CI x", "x", "string collate UNICODE_CI"),
        ("select struct() x", "x", "struct<>"),
        ("select array(map(1, parse_json('1'))) x", "x[].value", "variant"),
        ("select named_struct('y', null) x", "x.y", "void"),
    ],
)
def test_a_type_that_a_frame_cannot_hold_is_refused_by_name(
    spark: SparkSession, query: str, column: str, kind: str
) -> None:
    """While the flow is being built, with the user's file and line."""
    flow = ms.Flow("refused")

    with pytest.raises(ms.UsageError) as caught:
        flow.from_spark(spark.sql(query))

    text = str(caught.value)
    assert text.startswith("`from_spark` at test_spark_types.py:")
    assert f"column {column!r} has the Spark type {kind}, which a frame" in text


NANOSECONDS = pl.Datetime("ns")
UNKNOWN_TO_SPARK: dict[str, Any] = {
    "nanoseconds": NANOSECONDS,
    "nanoseconds in a list": pl.List(NANOSECONDS),
    "milliseconds of duration": pl.Duration("ms"),
    "time of day": pl.Time(),
    "wide integer": pl.Int128(),
    "half float": pl.Float16(),
    "nothing": pl.Null(),
    "struct of nothing": pl.Struct({}),
}


@pytest.mark.parametrize("dtype", UNKNOWN_TO_SPARK.values(), ids=UNKNOWN_TO_SPARK)
def test_a_type_that_spark_cannot_hold_is_refused_by_name(dtype: Any) -> None:
    """Nothing is rounded or cut off on the way to Spark."""
    flow = ms.Flow("refused")

    with pytest.raises(ms.UsageError, match=r"column 'x(\[\])?' has the type"):
        flow.from_frame(pl.DataFrame(schema={"x": dtype})).to_spark()


def test_columns_that_spark_takes_for_one_another_are_refused(
    spark: SparkSession,
) -> None:
    """A frame has one column per name, and Spark's names ignore case."""
    flow = ms.Flow("refused")

    with pytest.raises(ms.UsageError, match="columns 'x' and 'x' have the same name"):
        flow.from_spark(spark.sql("select 1 x, 2 x"))
    with pytest.raises(ms.UsageError, match=r"columns 's\.y' and 's\.Y' have the same"):
        flow.from_spark(spark.sql("select named_struct('y', 1, 'Y', 2) s"))
    with pytest.raises(ms.UsageError, match="columns 'x' and 'X' have the same name"):
        flow.from_frame(pl.DataFrame({"x": [1], "X": [2]})).to_spark()


def test_a_frame_without_columns_is_refused(spark: SparkSession) -> None:
    """Parquet cannot keep the number of its rows."""
    flow = ms.Flow("refused")

    with pytest.raises(ms.UsageError, match="without columns cannot be kept"):
        flow.from_spark(spark.range(3).select())


def test_what_only_frames_have_widens_without_loss(spark: SparkSession) -> None:
    """Unsigned numbers, fixed-size arrays, categories and other zones."""
    before = pl.DataFrame(
        {
            "u8": pl.Series([255, None], dtype=pl.UInt8),
            "u64": pl.Series([2**64 - 1, None], dtype=pl.UInt64),
            "category": pl.Series(["a", None], dtype=pl.Categorical),
            "array": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int32, 2)),
            "ms": pl.Series([-1, None], dtype=pl.Datetime("ms")),
            "berlin": pl.Series([-1, None], dtype=pl.Datetime("us", "Europe/Berlin")),
        }
    )
    flow = ms.Flow("widened")
    handle = flow.from_frame(before).to_spark()
    flow.run(on="local")

    after = handle.result()
    assert after.dtypes == [
        ("u8", "smallint"),
        ("u64", "decimal(20,0)"),
        ("category", "string"),
        ("array", "array<int>"),
        ("ms", "timestamp_ntz"),
        ("berlin", "timestamp"),
    ]
    line = after.where("u8 is not null").selectExpr(
        "int(u8)",
        "string(u64)",
        "category",
        "array",
        "string(ms)",
        "unix_micros(berlin)",
    )
    assert [tuple(row) for row in line.collect()] == [
        (255, str(2**64 - 1), "a", [1, 2], "1969-12-31 23:59:59.999", -1)
    ]
