"""CSV in and out: dialects, headers, schemas, and what CSV cannot say."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path


def rows_of(path: Path, **options: Any) -> pl.DataFrame:
    flow = ms.Flow("csv")
    handle = flow.read_csv(path, **options).collect()
    flow.run(on="local", workers=2)
    return handle.result()


def written(path: Path, text: str) -> Path:
    path.write_text(text, newline="")
    return path


def test_the_schema_is_inferred_from_the_first_lines(tmp_path: Path) -> None:
    """Types are those that Polars infers; a column of nulls is text."""
    path = written(tmp_path / "a.csv", "i,f,b,s,e\n1,1.5,true,x,\n2,2,false,3,\n")

    assert rows_of(path).schema == {
        "i": pl.Int64,
        "f": pl.Float64,
        "b": pl.Boolean,
        "s": pl.String,
        "e": pl.String,
    }


def test_the_inferred_schema_holds_for_all_rows(tmp_path: Path) -> None:
    """A value of another type behind the sample is a bad row, not another schema."""
    path = written(tmp_path / "a.csv", "i\n" + "1\n" * 50_000 + "1.5\n")

    with pytest.raises(ms.OperatorError, match=r"line 50002 .*1\.5"):
        rows_of(path)


def test_a_dialect_of_ones_own(tmp_path: Path) -> None:
    """Separator, quote, null texts, line ends and a file without header."""
    path = written(tmp_path / "a.csv", "1;'a;b'\r\nNA;c,d\r\n")
    options = {"separator": ";", "quote": "'", "null_values": ["NA"], "header": False}

    assert rows_of(path, **options).rows() == [(1, "a;b"), (None, "c,d")]
    assert rows_of(path, **options).columns == ["column_1", "column_2"]


def test_without_a_quote_quotes_are_text(tmp_path: Path) -> None:
    """Nothing is taken away from a field."""
    path = written(tmp_path / "a.csv", 's,t\n"a,b"\n')

    assert rows_of(path, quote=None).rows() == [('"a', 'b"')]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    """Not at the start, in the middle, nor at the end."""
    path = written(tmp_path / "a.csv", "a,b\n\n1,2\n\r\n\n3,4\n\n")

    assert rows_of(path).rows() == [(1, 2), (3, 4)]


def test_blank_lines_of_one_column_are_nulls(tmp_path: Path) -> None:
    """Otherwise a null of a single column could not be written."""
    path = written(tmp_path / "a.csv", "a\n\n1\n\n")

    assert rows_of(path).rows() == [(None,), (1,), (None,)]


def test_quoted_newlines_need_multiline(tmp_path: Path) -> None:
    """With it they are text; without it the line is malformed and says so."""
    path = written(tmp_path / "a.csv", 'a,b\n1,"x\ny"\n2,z\n')
    schema = {"a": pl.Int64, "b": pl.String}

    assert rows_of(path, schema=schema, multiline=True).rows() == [
        (1, "x\ny"),
        (2, "z"),
    ]
    with pytest.raises(ms.OperatorError, match=r"line 2 \(byte 4\)"):
        rows_of(path, schema=schema)


@pytest.mark.parametrize("header", ["a,c", "a", "b,a", "a,b,c"])
def test_a_header_that_is_not_the_schema_is_refused(
    tmp_path: Path, header: str
) -> None:
    """In the first file while the flow is built, in another when it is read."""
    schema = {"a": pl.Int64, "b": pl.Int64}
    path = written(tmp_path / "1.csv", f"{header}\n1,2\n")

    with pytest.raises(ms.UsageError, match=r"header of .*1\.csv names the columns"):
        ms.Flow("csv").read_csv(path, schema=schema)

    written(tmp_path / "0.csv", "a,b\n1,2\n")
    with pytest.raises(ms.OperatorError, match=r"header of .*1\.csv names the columns"):
        rows_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "nothing in .* to take a schema from; pass schema="),
        ("a,a\n1,2\n", {}, "two columns 'a'"),
        ("a\n", {"separator": ",,"}, "separator must be one ASCII character"),
        ("a\n", {"quote": ","}, "separator and quote are both"),
        ("a\n", {"null_values": ["x,y"]}, "must not hold the separator"),
        (
            "a\n",
            {"schema": {"a": pl.List(pl.Int64)}},
            r"no text for the type List.*'a'",
        ),
        ("a\n", {"schema": {}}, "at least one column"),
    ],
)
def test_mistakes_fail_while_the_flow_is_built(
    tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    """Each is one sentence with the place in the program."""
    path = written(tmp_path / "a.csv", text)

    with pytest.raises(ms.UsageError, match=rf"`read_csv` at .*\.py:\d+: .*{message}"):
        ms.Flow("csv").read_csv(path, **options)


def test_a_file_of_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    """Its columns are text."""
    found = rows_of(written(tmp_path / "a.csv", "a,b\n"))

    assert found.schema == {"a": pl.String, "b": pl.String}
    assert found.height == 0


TYPED = pl.DataFrame(
    {
        "i": [1, None, -(2**63)],
        "f": [0.1, float("inf"), None],
        "s": ["", None, 'a,"b"'],
        "d": [dt.date(2024, 2, 29), None, dt.date(1, 1, 1)],
        "t": [
            dt.datetime.fromisoformat("2024-01-02T03:04:05.000006"),
            None,
            dt.datetime.fromisoformat("1970-01-01T00:00:00"),
        ],
        "c": [Decimal("1.20"), None, Decimal("-0.05")],
        "b": [True, None, False],
    },
    schema_overrides={"c": pl.Decimal(10, 2), "i": pl.Int64},
)


@pytest.mark.parametrize("workers", [1, 3])
def test_what_was_written_as_csv_comes_back(tmp_path: Path, workers: int) -> None:
    """With the schema, types, nulls and empty texts are the same."""
    TYPED.write_parquet(tmp_path / "in.parquet", row_group_size=1)
    flow = ms.Flow("csv")
    flow.read_parquet(tmp_path / "in.parquet").write_csv(tmp_path / "out")
    flow.run(on="local", workers=workers)

    found = rows_of(tmp_path / "out", schema=TYPED.schema)
    assert_frame_equal(found, TYPED, check_row_order=False, check_exact=True)
    parts = sorted((tmp_path / "out").glob("part-*.csv"))
    assert len(parts) == workers
    assert all(part.read_text().startswith("i,f,s,d,t,c,b\n") for part in parts)


def test_a_nested_column_cannot_be_written_as_csv(tmp_path: Path) -> None:
    """It fails before anything runs, by name."""
    pl.DataFrame({"l": [[1]]}).write_parquet(tmp_path / "in.parquet")
    frame = ms.Flow("csv").read_parquet(tmp_path / "in.parquet")

    with pytest.raises(ms.UsageError, match=r"`write_csv` at .*List\(Int64\) of .*'l'"):
        frame.write_csv(tmp_path / "out")
