"""Frames come from other libraries, and from rows: what fits is taken, the rest is named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pytest

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = pl.DataFrame({"x": [1, 2, 3], "s": ["a", None, "c"]})


@pytest.mark.parametrize(
    "frame",
    [
        TABLE.to_pandas(),
        TABLE.to_pandas()[lambda f: f["x"] > 0],
        TABLE.to_arrow(),
        TABLE.to_arrow().to_batches()[0],
        TABLE.lazy().filter(pl.col("x") > 0),
    ],
    ids=lambda frame: type(frame).__module__,
)
def test_data_frame_of_another_library_is_read(frame: Any) -> None:
    """Those of pandas and Arrow are installed anyway; a lazy one is collected."""
    flow = ms.Flow("given")
    rows = flow.from_frame(frame).collect()
    flow.run(on="local", workers=2)

    assert rows.result().sort("x").rows() == TABLE.rows()


@dataclass
class Point:
    """A row."""

    x: int
    s: str


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"x": [1]}, r"got dict; make one by pl\.DataFrame"),
        (pl.Series([1]), r"got polars Series; make one by"),
        (None, "got NoneType"),
        (pd.DataFrame({"x": [1]}, index=pd.Index([7], name="id")), "reset_index"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "cannot be read: "),
        (pd.DataFrame({"x": [1, "a"]}), "cannot be read: "),
        (TABLE.lazy().select("no"), "cannot be read: "),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_no_data_frame_is_refused(frame: Any, words: str) -> None:
    """In a sentence, at the line where it was written."""
    with pytest.raises(
        ms.UsageError, match=f"`from_frame` at test_frame_given.*{words}"
    ):
        ms.Flow("given").from_frame(frame)


@pytest.mark.parametrize(
    "schema", [["x"], {"x": "Int64"}, {}, None, {1: pl.Int64}, {"x": pl.List}], ids=str
)
@pytest.mark.parametrize("verb", ["to_frame", "map_batches"])
def test_schema_has_names_and_types(verb: str, schema: Any) -> None:
    """A list of names does not say what the columns hold."""
    flow = ms.Flow("schema")
    build: dict[str, Callable[[], object]] = {
        "to_frame": lambda: flow.from_iterable([{"x": 1}]).to_frame(schema),
        "map_batches": lambda: flow.from_frame(TABLE).map_batches(
            lambda rows: rows, schema=schema or ()
        ),
    }

    with pytest.raises(
        ms.UsageError, match=rf"`{verb}` at .*such as \{{'x': pl\.Int64"
    ):
        build[verb]()


SCHEMA = {"x": pl.Int64, "s": pl.String}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"x": 1, "S": "a"}, "has the key 'S', and the schema has 'x', 's'"),
        ({"x": "1", "s": "a"}, r"has '1' \(str\) in column 'x', which is Int64"),
        ({"x": 1.5, "s": "a"}, r"has 1\.5 \(float\) in column 'x'"),
        ({"x": True, "s": "a"}, r"has True \(bool\) in column 'x'"),
        ((1, 2), r"has 2 \(int\) in column 's', which is String"),
        ((1,), "has 1 values, and the schema has 'x', 's'"),
        ((1, "a", 2), "has 3 values"),
        (7, "is a int; expected a dict, a tuple or a dataclass"),
        (Point("1", "a"), r"has '1' \(str\) in column 'x'"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_row_that_does_not_fit_the_schema_is_named(row: Any, words: str) -> None:
    """Polars would take "1" for 1, 1.5 for 1, and a misspelt key for null."""
    fitting = {"x": 5, "s": "e"} if isinstance(row, dict) else (5, "e")
    flow = ms.Flow("wrong")
    flow.from_iterable([fitting, row]).to_frame(SCHEMA).collect()

    with pytest.raises(ms.OperatorError, match=rf"the row .*{words}.*record 1 "):
        flow.run(on="local")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pl.Struct({"u": pl.Int64}), {"u": "1"}),
        (pl.Struct({"u": pl.Int64}), {"v": 1}),
        (pl.List(pl.Int64), ["1"]),
        (pl.List(pl.Int64), 1),
        (pl.List(pl.Struct({"u": pl.Int64})), [{"u": 1.5}]),
        (pl.Array(pl.Int64, 2), ["1", "2"]),
        (pl.Date, datetime(2020, 1, 1)),  # noqa: DTZ001 - of a column without a zone
        (pl.Datetime("us"), 5),
        (pl.Decimal(10, 2), "1.5"),
        (pl.Enum(["a"]), 1),
        (pl.Boolean, 1),
        (pl.Null, 1),
    ],
    ids=str,
)
def test_value_of_another_type_is_named_wherever_it_is(dtype: Any, value: Any) -> None:
    """Also in the fields of structures and the items of lists."""
    flow = ms.Flow("nested")
    flow.from_iterable([(value,)]).to_frame({"made": dtype}).collect()

    with pytest.raises(ms.OperatorError, match=r"the row .* in .*column 'made'"):
        flow.run(on="local")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(pl.Array(pl.Int64, 2), [1]), (pl.Enum(["a"]), "b"), (pl.Int8, 300)],
    ids=str,
)
def test_value_that_its_type_has_no_room_for_fails(dtype: Any, value: Any) -> None:
    """With the words of Polars, instead of a null or the end of the process."""
    flow = ms.Flow("room")
    flow.from_iterable([{"made": value}]).to_frame({"made": dtype}).collect()

    with pytest.raises(ms.OperatorError, match="to_frame"):
        flow.run(on="local")


def test_rows_that_fit_are_columns() -> None:
    """Dicts may leave out what is null; integers are floats as well."""
    schema = {"x": pl.Float64, "d": pl.Decimal(10, 2), "l": pl.List(pl.Int8)}
    flow = ms.Flow("fit")
    rows = [{"x": 1}, {"x": 2.5, "d": Decimal("1.5"), "l": [1, None]}, {"l": (2,)}, {}]
    dicts = flow.from_iterable(rows).to_frame(schema).collect()
    points = flow.from_iterable([Point(1, "a")]).to_frame(SCHEMA).collect()
    flow.run(on="local")

    assert dicts.result().rows() == [
        (1.0, None, None),
        (2.5, Decimal("1.50"), [1, None]),
        (None, None, [2]),
        (None, None, None),
    ]
    assert points.result().rows() == [(1, "a")]


def test_row_that_does_not_fit_is_a_dead_letter() -> None:
    """The others go on."""
    flow = ms.Flow("letters")
    rows = [{"x": 1}, {"y": 2}, {"x": "3"}, {"x": 4}]
    made = flow.from_iterable(rows).to_frame({"x": pl.Int64}).collect()
    letters = flow.dead_letters(2).collect()
    flow.run(on="local")

    assert made.result()["x"].to_list() == [1, 4]
    assert [letter.record for letter in letters.result()] == [{"y": 2}, {"x": "3"}]
