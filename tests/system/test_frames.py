"""Frames: what a flow of data frames gives is what Polars gives, wherever it runs.

Method: each case is a function from a frame to a frame that means the same on a `Frame`
of a flow and, with Polars' own verbs, on a data frame.  Rows are compared as multisets,
in order where the case ends with a sort.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.launchers import Launcher

NAMES = pl.DataFrame({"key": ["a", "c"], "name": ["ada", "cem"]})
DATA = pl.DataFrame(
    {
        "key": [["a", "b", None, "c", "ü"][i % 5] for i in range(997)],
        "number": [i * 7 % 101 - 50 for i in range(997)],
        "share": [i / 8 if i % 11 else None for i in range(997)],
        "items": [list(range(i % 3)) for i in range(997)],
        "text": [f"To be {i}, or not" for i in range(997)],
    }
)

CASES: dict[str, Callable[[Any], Any]] = {
    "select": lambda f: f.select("key", twice=pl.col("number") * 2),
    "filter": lambda f: f.filter(pl.col("number") > 0, pl.col("key") == "a"),
    "with_columns": lambda f: f.with_columns(pl.col("share").fill_null(0) + 1),
    "drop and rename": lambda f: f.drop("items").rename({"number": "n"}),
    "explode": lambda f: f.select("number", "items").explode("items"),
    "inner join": lambda f: f.join(NAMES, on="key"),
    "left join": lambda f: f.join(NAMES, on="key", how="left"),
    "semi join": lambda f: f.join(NAMES, on="key", how="semi"),
    "anti join": lambda f: f.join(NAMES, on="key", how="anti"),
    "sums by key": lambda f: f.group_by("key").agg(
        pl.col("number").sum(), pl.len().alias("n"), mean=pl.col("share").mean()
    ),
    "extremes by two keys": lambda f: f.group_by("key", "number").agg(
        pl.col("share").min().alias("low"), pl.col("share").max().alias("high")
    ),
    "sort": lambda f: f.sort("number", "text", descending=(True, False)),
    "sort and limit": lambda f: f.sort("text").limit(17),
}


def canonical(frame: pl.DataFrame, *, is_ordered: bool) -> list[str]:
    rows = [repr(row) for row in frame.rows()]
    return rows if is_ordered else sorted(rows)


def by_polars(name: str) -> list[str]:
    if name == "sort":
        frame = DATA.sort("number", "text", descending=[True, False])
    else:
        frame = CASES[name](DATA)
    return canonical(frame, is_ordered=name.startswith("sort"))


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("name", CASES)
def test_flow_gives_what_polars_gives(name: str, workers: int) -> None:
    """Also in batches of a few rows, cut anywhere."""
    flow = ms.Flow("frames")
    result = CASES[name](flow.from_frame(DATA)).collect()
    flow.run(on="local", workers=workers, frame_buffer=ms.fixed(29))

    is_ordered = name.startswith("sort")
    assert canonical(result.result(), is_ordered=is_ordered) == by_polars(name)


@pytest.mark.parametrize("name", ["filter", "sums by key", "sort and limit"])
def test_flow_survives_the_simulator(name: str) -> None:
    """The same rows under delays, clogs and freezes, or a clear failure."""
    flow = ms.Flow("frames")
    CASES[name](flow.from_frame(DATA.head(120))).collect()

    assert simulate(flow, seeds=range(8)).is_clean


def test_same_everywhere(launcher: Launcher) -> None:
    """Frames cross processes as Arrow, and Spark's tasks as any other."""
    flow = ms.Flow("frames")
    frame = flow.from_frame(DATA)
    frame.to_rows().map(lambda row: row["number"]).sum()
    tokens = frame.tokens("text").group_by("text").agg(pl.len().alias("n"))
    tokens.to_rows().map(lambda row: (row["text"], row["n"])).collect(dict)
    frame.select("number").union(frame.select("number")).to_rows().count()
    sums = frame.group_by("key").agg(pl.col("number").sum().alias("sum"))
    joined = frame.select("key").unique().join(sums, "key").sort("key")
    joined.to_rows().map(lambda row: (row["key"], row["sum"])).collect()
    total, words, count, rows = launcher.run(flow, workers=2)

    assert total == DATA["number"].sum()
    assert words["be"] == DATA.height
    assert count == 2 * DATA.height
    by_key = DATA.drop_nulls("key").group_by("key").agg(pl.col("number").sum())
    assert rows == by_key.sort("key").rows()


def test_rows_become_frames() -> None:
    """Dicts and tuples fit a schema; what does not is the user's fault."""
    flow = ms.Flow("frames")
    schema = {"key": pl.String, "n": pl.Int64}
    tuples = flow.from_iterable([("a", 1), ("b", None)]).to_frame(schema).collect()
    dicts = flow.from_iterable([{"key": "c", "n": 2}]).to_frame(schema).collect()
    flow.run(on="local")

    assert tuples.result().rows() == [("a", 1), ("b", None)]
    assert dicts.result().rows() == [("c", 2)]

    wrong = ms.Flow("wrong")
    wrong.from_iterable([("a", "one")]).to_frame(schema).collect()
    with pytest.raises(ms.OperatorError, match=r"to_frame at test_frames\.py"):
        wrong.run(on="local")


@pytest.mark.parametrize(
    "query",
    [
        lambda f: f.with_columns(pl.col("number").cum_sum()),
        lambda f: f.select(pl.col("number").sum()),
        lambda f: f.filter(pl.col("number") > pl.col("number").mean()),
        lambda f: f.with_columns(pl.col("number").rank().over("key")),
    ],
)
def test_query_over_many_rows_is_refused(query: Callable[[ms.Frame], ms.Frame]) -> None:
    """Its answer would depend on where batches are cut."""
    frame = ms.Flow("frames").from_frame(DATA)

    with pytest.raises(ms.UsageError, match="more than one row"):
        query(frame)


def test_unknown_column_is_refused_where_it_is_named() -> None:
    """With the columns there are, while the flow is being built."""
    frame = ms.Flow("frames").from_frame(DATA)

    with pytest.raises(ms.UsageError, match=r"test_frames.py:\d+.*nope"):
        frame.select("nope")
    with pytest.raises(ms.UsageError, match="'nope'; the columns here are"):
        frame.sort("nope")
