"""Parquet in and out: types, columns, and files that are not what they seem."""

from __future__ import annotations

import datetime as dt
import gc
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import millstream as ms
from millstream.connectors.parquet import ParquetSink

if TYPE_CHECKING:
    from pathlib import Path

TYPED = pl.DataFrame(
    {
        "id": [0, 1, 2],
        "zoned": [
            dt.datetime.fromisoformat("2024-07-01T12:00:00"),
            None,
            dt.datetime.fromisoformat("1960-01-01T00:00:00"),
        ],
        "nanos": [
            dt.datetime.fromisoformat("2024-07-01T12:00:00"),
            None,
            dt.datetime.fromisoformat("1960-01-01T00:00:00"),
        ],
        "date": [dt.date(2024, 2, 29), None, dt.date(1900, 1, 1)],
        "time": [dt.time(1, 2, 3, 4), None, dt.time(0)],
        "lasting": [dt.timedelta(days=-1, microseconds=1), None, dt.timedelta(0)],
        "money": [Decimal("12345678901234567890.12"), None, Decimal("-0.01")],
        "list": [[1, None], None, []],
        "struct": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}],
        "array": [[1, 2], None, [3, 4]],
        "small": [1, None, 255],
        "bytes": [b"\x00\xff", None, b""],
        "enum": ["y", None, "x"],
        "kind": ["k", None, "l"],
        "none": [None, None, None],
        "float": [float("nan"), None, -0.0],
    },
    schema_overrides={
        "zoned": pl.Datetime("us", "Europe/Berlin"),
        "nanos": pl.Datetime("ns"),
        "money": pl.Decimal(38, 2),
        "array": pl.Array(pl.Int16, 2),
        "small": pl.UInt8,
        "enum": pl.Enum(["x", "y"]),
        "kind": pl.Categorical,
    },
)


def rows_of(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    flow = ms.Flow("parquet")
    handle = flow.read_parquet(path, columns=columns).collect()
    flow.run(on="local", workers=2)
    return handle.result()


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_types_survive_a_round_trip(tmp_path: Path, workers: int) -> None:
    """Zones, decimals, nested columns and nulls come back as they were."""
    TYPED.write_parquet(tmp_path / "in.parquet", row_group_size=1)
    flow = ms.Flow("parquet")
    flow.read_parquet(tmp_path / "in.parquet").write_parquet(tmp_path / "out")
    flow.run(on="local", workers=workers)

    found = rows_of(tmp_path / "out").sort("id")
    assert_frame_equal(found, TYPED, check_exact=True, categorical_as_str=True)
    alone = pl.read_parquet(tmp_path / "out" / "*.parquet").sort("id")
    assert_frame_equal(alone, TYPED, check_exact=True, categorical_as_str=True)
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == workers


def test_only_the_wanted_columns_are_read(tmp_path: Path) -> None:
    """In the order that was asked for."""
    TYPED.write_parquet(tmp_path / "a.parquet")

    assert rows_of(tmp_path / "a.parquet", ["small", "id"]).rows() == [
        (1, 0),
        (None, 1),
        (255, 2),
    ]


@pytest.mark.parametrize("columns", [["id", "nothing"], []])
def test_columns_that_are_not_there_are_refused(
    tmp_path: Path, columns: list[str]
) -> None:
    """The sentence says which columns there are, or that none was named."""
    TYPED.write_parquet(tmp_path / "a.parquet")

    with pytest.raises(ms.UsageError, match=r"no column"):
        ms.Flow("parquet").read_parquet(tmp_path, columns=columns)


@pytest.mark.parametrize("content", ["truncated", "text", "footer"])
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, content: str) -> None:
    """Cut short, of another kind, or damaged in its last bytes."""
    path = tmp_path / "a.parquet"
    TYPED.write_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "truncated": whole[: len(whole) // 2],
            "text": b"a,b\n1,2\n",
            "footer": whole[:-40] + b"\xff" * 32 + whole[-8:],
        }[content]
    )

    with pytest.raises(
        ms.UsageError, match=r"a\.parquet is no Parquet file, or is cut"
    ):
        ms.Flow("parquet").read_parquet(path)


def test_damaged_pages_fail_the_job(tmp_path: Path) -> None:
    """The footer is whole, so only reading the rows can tell."""
    path = tmp_path / "a.parquet"
    pl.DataFrame({"x": range(10_000)}).write_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])

    with pytest.raises(ms.OperatorError, match=r"a\.parquet is no Parquet file, or"):
        rows_of(path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": ["a"], "y": [1]}, r"'x' is Int64 in .*0\.parquet and String in .*1\."),
        ({"x": [1]}, r"'y' is in .*0\.parquet and not in .*1\.parquet"),
        ({"x": [1], "y": [1], "z": [1]}, r"'z' is in .*1\.parquet and not in .*0\."),
    ],
)
def test_files_that_disagree_are_refused(
    tmp_path: Path, other: dict[str, list[object]], message: str
) -> None:
    """The sentence names both files and the column."""
    pl.DataFrame({"x": [1], "y": [2]}).write_parquet(tmp_path / "0.parquet")
    pl.DataFrame(other).write_parquet(tmp_path / "1.parquet")

    with pytest.raises(ms.UsageError, match=message):
        ms.Flow("parquet").read_parquet(tmp_path)


def test_files_need_to_agree_only_on_what_is_read(tmp_path: Path) -> None:
    """Other columns, and another order, do not matter."""
    pl.DataFrame({"x": [1], "y": [2]}).write_parquet(tmp_path / "0.parquet")
    pl.DataFrame({"y": ["z"], "x": [3]}).write_parquet(tmp_path / "1.parquet")

    assert sorted(rows_of(tmp_path, ["x"])["x"]) == [1, 3]


def test_files_without_rows_or_bytes_are_fine(tmp_path: Path) -> None:
    """They add nothing; but one file must have a schema."""
    (tmp_path / "0.parquet").touch()
    pl.DataFrame(schema={"x": pl.Int64}).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"x": [5]}).write_parquet(tmp_path / "2.parquet")

    assert rows_of(tmp_path).rows() == [(5,)]
    with pytest.raises(ms.UsageError, match=r"no schema, since .*0\.parquet is empty"):
        ms.Flow("parquet").read_parquet(tmp_path / "0.parquet")


def test_what_parquet_cannot_hold_is_refused(tmp_path: Path) -> None:
    """Before anything runs."""
    TYPED.write_parquet(tmp_path / "a.parquet")
    frame = ms.Flow("parquet").read_parquet(tmp_path / "a.parquet")

    with pytest.raises(ms.UsageError, match="write_parquet cannot write"):
        frame.write_parquet(tmp_path / "out", compression="none at all")


def test_an_abandoned_part_is_left_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow would write a footer to the closed file when the writer is thrown away."""
    complaints: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", complaints.append)
    sink = ParquetSink(tmp_path / "out", TYPED.schema)
    sink.prepare("job")
    writer = sink.open("job", 0)
    writer.write(TYPED)  # type: ignore[arg-type]  # a frame is a batch
    writer.close()

    del writer
    gc.collect()
    assert not complaints
