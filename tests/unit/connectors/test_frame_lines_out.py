"""JSON lines and text out of frames, and JSON lines into them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TYPED = pl.DataFrame(
    {
        "i": [1, None, 2**63 - 1],
        "small": [1, None, 255],
        "f": [0.1, None, 1e300],
        "s": ["", None, 'a\n"b"\u2028'],
        "d": [dt.date(2024, 2, 29), None, dt.date(1900, 1, 1)],
        "t": [
            dt.datetime.fromisoformat("2024-01-02T03:04:05.000006"),
            None,
            dt.datetime.fromisoformat("1970-01-01T00:00:00"),
        ],
        "z": [
            dt.datetime.fromisoformat("2024-07-02T03:00:00"),
            None,
            dt.datetime.fromisoformat("1970-01-01T00:00:00"),
        ],
        "clock": [dt.time(1, 2, 3), None, dt.time(0)],
        "c": [Decimal("1.20"), None, Decimal("-0.05")],
        "l": [[1, 2], None, []],
        "r": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}],
        "e": ["y", None, "x"],
    },
    schema_overrides={
        "c": pl.Decimal(10, 2),
        "small": pl.UInt8,
        "z": pl.Datetime("us", "Europe/Berlin"),
        "e": pl.Enum(["x", "y"]),
    },
)


def jsonl_of(path: Path, **options: Any) -> pl.DataFrame:
    flow = ms.Flow("jsonl")
    handle = flow.read_jsonl(path, **options).collect()
    flow.run(on="local", workers=2)
    return handle.result()


@pytest.mark.parametrize("workers", [1, 3])
def test_what_was_written_as_json_comes_back(tmp_path: Path, workers: int) -> None:
    """With the schema, nested values, zones, decimals and nulls are the same."""
    TYPED.write_parquet(tmp_path / "in.parquet", row_group_size=1)
    flow = ms.Flow("jsonl")
    flow.read_parquet(tmp_path / "in.parquet").write_jsonl(tmp_path / "out")
    flow.run(on="local", workers=workers)

    found = jsonl_of(tmp_path / "out", schema=TYPED.schema).sort("i", nulls_last=True)
    assert_frame_equal(found, TYPED.sort("i", nulls_last=True), check_exact=True)


def test_the_schema_of_json_is_inferred_and_then_holds(tmp_path: Path) -> None:
    """What is always null is text; unknown keys are left out and missing ones null."""
    path = tmp_path / "a.jsonl"
    sample = '{"a": 1, "n": null, "l": [], "r": {"x": null}}\n' * 2_000
    path.write_text(f'{sample}\n{{"b": 2, "n": "t"}}\n')

    found = jsonl_of(path)

    assert found.schema == {
        "a": pl.Int64,
        "n": pl.String,
        "l": pl.List(pl.String),
        "r": pl.Struct({"x": pl.String}),
    }
    assert found.filter(pl.col("n") == "t")["a"].to_list() == [None]


def test_a_nested_value_of_another_type_is_malformed(tmp_path: Path) -> None:
    """It does not become a null in silence."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"l": [1, "x"]}\n')

    with pytest.raises(ms.OperatorError, match=r"line 1 .* malformed"):
        jsonl_of(path, schema={"l": pl.List(pl.Int64)})


def test_a_number_that_does_not_fit_is_malformed(tmp_path: Path) -> None:
    """Small integers are checked, not wrapped."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 255}\n{"n": 256}\n')

    with pytest.raises(ms.OperatorError, match=r"line 2 .* malformed"):
        jsonl_of(path, schema={"n": pl.UInt8})


@pytest.mark.parametrize("text", ["", "\n\n", "[1]\nnonsense\n"])
def test_nothing_to_infer_from_is_said(tmp_path: Path, text: str) -> None:
    """The user can still give a schema."""
    path = tmp_path / "a.jsonl"
    path.write_text(text)

    with pytest.raises(ms.UsageError, match=r"no JSON object in .*a\.jsonl"):
        ms.Flow("jsonl").read_jsonl(path)


@pytest.mark.parametrize("kind", [pl.Duration("us"), pl.Binary, pl.List(pl.Date)])
def test_types_that_json_has_no_text_for_are_refused(
    tmp_path: Path, kind: pl.DataType
) -> None:
    """By name, while the flow is built."""
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n")

    with pytest.raises(ms.UsageError, match=r"cannot read the type .* of column 'a'"):
        ms.Flow("jsonl").read_jsonl(path, schema={"a": kind})


def test_bytes_cannot_be_written_as_json(tmp_path: Path) -> None:
    """Not even inside a list."""
    pl.DataFrame({"b": [[b"x"]]}).write_parquet(tmp_path / "a.parquet")
    frame = ms.Flow("jsonl").read_parquet(tmp_path / "a.parquet")

    with pytest.raises(ms.UsageError, match=r"`write_jsonl` at .* of column 'b'"):
        frame.write_jsonl(tmp_path / "out")


@pytest.mark.parametrize("workers", [1, 3])
def test_lines_that_were_read_are_written_again(tmp_path: Path, workers: int) -> None:
    """Text goes through a flow unchanged, in order within a task."""
    lines = [f"line {i} é" for i in range(100)] + [""]
    (tmp_path / "a.txt").write_text("\n".join([*lines, ""]))
    flow = ms.Flow("text")
    flow.read_lines(tmp_path / "a.txt").write_text(tmp_path / "out")
    flow.run(on="local", workers=workers)

    parts = sorted((tmp_path / "out").glob("part-*.txt"))
    assert "".join(part.read_text() for part in parts) == "\n".join([*lines, ""])
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.parametrize("table", [{"a": [1]}, {"a": ["x"], "b": ["y"]}])
def test_text_is_one_column_of_text(
    tmp_path: Path, table: dict[str, list[object]]
) -> None:
    """Anything else is refused while the flow is built."""
    pl.DataFrame(table).write_parquet(tmp_path / "a.parquet")
    frame = ms.Flow("text").read_parquet(tmp_path / "a.parquet")

    with pytest.raises(ms.UsageError, match=r"`write_text` at .* one String column"):
        frame.write_text(tmp_path / "out")


def test_a_null_is_no_line_of_text(tmp_path: Path) -> None:
    """The job fails, and nothing appears in the directory."""
    pl.DataFrame({"a": ["x", None]}).write_parquet(tmp_path / "a.parquet")
    flow = ms.Flow("text")
    flow.read_parquet(tmp_path / "a.parquet").write_text(tmp_path / "out")

    with pytest.raises(ms.OperatorError, match="cannot write the null in column 'a'"):
        flow.run(on="local", workers=1)

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("shape", ["plain", "list", "struct", "array", "deep"])
def test_numbers_that_json_does_not_have_are_refused_as_for_rows(
    tmp_path: Path, bad: float, shape: str
) -> None:
    """A null in their place would be another value, and nobody would know."""
    good = 1.5
    shapes: dict[str, Callable[[float], pl.Series]] = {
        "plain": lambda x: pl.Series([good, None, x]),
        "list": lambda x: pl.Series([[good], [], None, [x]]),
        "struct": lambda x: pl.Series([{"a": good}, {"a": x}]),
        "array": lambda x: pl.Series([[good], [x]], dtype=pl.Array(pl.Float32, 1)),
        "deep": lambda x: pl.Series([[{"a": [good]}], [{"a": [x]}]]),
    }
    shaped = shapes[shape]
    for name, value in (("fine", good), ("bad", bad)):
        frame = pl.DataFrame({"x": shaped(value)})
        flow = ms.Flow("json")
        flow.from_frame(frame).write_jsonl(tmp_path / name)
        if name == "fine":
            flow.run(on="local")
        else:
            with pytest.raises(
                ms.OperatorError, match="'x', which holds NaN or an inf"
            ):
                flow.run(on="local")

    rows = ms.Flow("rows")
    rows.from_iterable([{"x": bad}]).write_jsonl(tmp_path / "rows")
    with pytest.raises(ms.OperatorError, match="finite float"):
        rows.run(on="local")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_malformed(
    tmp_path: Path, text: str
) -> None:
    """What cannot be written cannot be read."""
    (tmp_path / "a.jsonl").write_text(f'{{"x": 1.5}}\n{{"x": {text}}}\n')
    flow = ms.Flow("json")
    schema = {"x": pl.Float64}
    frame = flow.read_jsonl(tmp_path / "a.jsonl", schema=schema, max_bad_rows=1)
    rows, bad = frame.collect(), frame.bad_rows.collect()
    flow.run(on="local")

    assert rows.result()["x"].to_list() == [1.5]
    assert bad.result()["line"].to_list() == [2]
