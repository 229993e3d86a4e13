"""Projection: which columns of a file are read, and that nobody misses the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms
from millstream.plan.nodes import Read
from millstream.plan.stages import plan_stages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pl.DataFrame(
    {
        "shop": ["a", "b", "a", None],
        "price": [3, 1, 2, 5],
        "note": ["x", None, "x y", "z"],
        "weight": [0.5, 1.5, None, 2.5],
        "day": [1, 1, 2, 2],
    }
)
ALL = list(ROWS.columns)
WRITERS = {"jsonl": "ndjson"}
SHOPS = pl.DataFrame({"shop": ["a", "b"], "city": ["Aa", "Bb"], "note": ["p", "q"]})


@pytest.fixture(params=["csv", "parquet", "jsonl"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[ms.Flow], Any]:
    """Return what reads the same rows from a file of each kind."""
    kind = str(request.param)
    path = tmp_path / f"rows.{kind}"
    getattr(ROWS, f"write_{WRITERS.get(kind, kind)}")(path)
    return lambda flow: getattr(flow, f"read_{kind}")(path)


def columns_read(flow: ms.Flow) -> list[str]:
    """Return the columns that the planned source reads."""
    nodes = [n for s in plan_stages(flow.plan, ms.Config()).stages for n in s.nodes]
    (source,) = [n.spec.source for n in nodes if isinstance(n.spec, Read)]
    names: list[str] = source.schema.names()  # type: ignore[attr-defined]
    return names


def answered(
    table: Callable[[ms.Flow], Any], *branches: Callable[[Any], Any]
) -> tuple[list[str], list[list[Any]]]:
    """Return the columns that were read, and the rows of every branch in order."""
    flow = ms.Flow("projection")
    frame = table(flow)
    handles = [branch(frame).collect() for branch in branches]
    read = columns_read(flow)
    flow.run(on="local", workers=2)
    return read, [sorted(h.result().rows(), key=repr) for h in handles]


def answered_from_memory(branches: tuple[Callable[[Any], Any], ...]) -> list[list[Any]]:
    """Return the rows of the same branches of a source that always has all columns."""
    flow = ms.Flow("memory")
    frame = flow.from_frame(ROWS)
    handles = [branch(frame).collect() for branch in branches]
    flow.run(on="local", workers=2)
    return [sorted(handle.result().rows(), key=repr) for handle in handles]


CASES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "select": (
        lambda f: f.select("price", half=pl.col("weight") / 2),
        ["price", "weight"],
    ),
    "filter": (
        lambda f: f.filter(pl.col("price") > 1).select("shop"),
        ["shop", "price"],
    ),
    "what is computed and then dropped": (
        lambda f: f.with_columns(twice=pl.col("price") * 2).select("day"),
        ["day"],
    ),
    "a name that is made of another": (
        lambda f: f.rename({"note": "text"}).select(pl.col("text").str.len_chars()),
        ["note"],
    ),
    "a column by its number": (lambda f: f.select(x=pl.nth(3)), ["weight"]),
    "what is left of all": (
        lambda f: f.drop("note").select(pl.all().exclude("day")),
        ["shop", "price", "weight"],
    ),
    "all columns side by side": (
        lambda f: f.select(n=pl.sum_horizontal(pl.col(pl.Int64))),
        ["price", "day"],
    ),
    "keys and values": (
        lambda f: f.group_by("shop").agg(pl.len(), pl.col("price").sum()),
        ["shop", "price"],
    ),
    "a computed key": (
        lambda f: f.group_by(odd=pl.col("day") % 2).agg(pl.col("price").max()),
        ["price", "day"],
    ),
    "a part that is no column": (
        lambda f: f.group_by("shop").agg(pl.col("day").n_unique()),
        ["shop", "day"],
    ),
    "an aggregate of one's own": (
        lambda f: f.group_by("day").agg(ms.approx_quantile("price", 0.5)),
        ["price", "day"],
    ),
    "sort and limit": (
        lambda f: f.sort("price").limit(2).select("shop"),
        ["shop", "price"],
    ),
    "unique": (lambda f: f.unique("shop").select("shop"), ["shop"]),
    "tokens": (lambda f: f.filter(pl.col("day") == 2).tokens("note"), ["note", "day"]),
    "join": (
        lambda f: f.join(SHOPS, "shop").select("city", "price"),
        ["shop", "price", "note"],
    ),
    "a column that the join renames": (
        lambda f: f.join(SHOPS, "shop").select("note_right"),
        ["shop", "note"],
    ),
    "nothing but the number of rows": (
        lambda f: (
            f.select(x=pl.col("shop").is_null() | True).group_by("x").agg(pl.len())
        ),
        ["shop"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_the_needed_columns_are_read(
    table: Callable[[ms.Flow], Any], name: str
) -> None:
    """And the answer is that of a source which has them all."""
    branch, expected = CASES[name]

    read, rows = answered(table, branch)

    assert read == expected
    assert rows == answered_from_memory((branch,))


@pytest.mark.parametrize(
    "branch",
    [
        lambda f: f,
        lambda f: f.filter(pl.col("price") > 1),
        lambda f: f.map_batches(
            lambda batch: batch.select("price"), schema={"price": pl.Int64}
        ),
        lambda f: f.union(f).select("price"),
        lambda f: f.to_rows().to_frame(ROWS.schema).select("price"),
        lambda f: f.sort("price"),
    ],
    ids=["collect", "filter", "map_batches", "union", "to_rows", "sort"],
)
def test_whoever_may_look_at_anything_gets_everything(
    table: Callable[[ms.Flow], Any], branch: Callable[[Any], Any]
) -> None:
    """Functions, rows and sinks need all columns, and so do streams that meet."""
    read, rows = answered(table, branch)

    assert read == ALL
    assert rows == answered_from_memory((branch,))


def test_branches_need_what_one_of_them_needs(table: Callable[[ms.Flow], Any]) -> None:
    """Each branch sees the schema that it was written for."""
    branches = (
        lambda f: f.select("note", pl.nth(1).alias("second")),
        lambda f: f.group_by("day").agg(pl.len()),
        lambda f: f.filter(pl.col("day") == 1).select("price"),
    )

    read, rows = answered(table, *branches)

    assert read == ["price", "note", "day"]
    assert rows == answered_from_memory(branches)


def test_branches_behind_a_shared_query(table: Callable[[ms.Flow], Any]) -> None:
    """A column of the shared query that no branch needs costs no column of the file."""

    def shared(frame: Any) -> Any:
        return frame.with_columns(gross=pl.col("price") * 2, short=pl.col("note"))

    flow = ms.Flow("shared")
    both = shared(table(flow))
    first = both.select("gross").collect()
    second = both.group_by("shop").agg(pl.len()).collect()
    read = columns_read(flow)
    flow.run(on="local", workers=2)

    assert read == ["shop", "price"]
    assert sorted(first.result()["gross"]) == [2, 4, 6, 10]
    assert second.result()["len"].sum() == ROWS.height


def test_a_value_that_nobody_reads_need_not_fit(tmp_path: Path) -> None:
    """Types of columns that are read are checked; text and fields are in every line."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'n,m,s\n1,2,a\n3,four,b\n5,6,"\xff"\n7,8\n9,10,c,d\n11,12,e\n')
    schema = {"n": pl.Int64, "m": pl.Int64, "s": pl.String}
    flow = ms.Flow("bad")
    frame = flow.read_csv(path, schema=schema, max_bad_rows=10)
    numbers, bad = frame.select("n").collect(), frame.bad_rows.collect()
    flow.run(on="local")

    assert sorted(numbers.result()["n"]) == [1, 3, 11]
    assert sorted(bad.result()["text"]) == ['5,6,"\\xff"', "7,8", "9,10,c,d"]


def test_bad_rows_are_those_of_the_columns_that_are_read(tmp_path: Path) -> None:
    """Reading the good and the bad rows apart leaves columns out all the same."""
    path = tmp_path / "a.csv"
    flow = ms.Flow("bad")
    schema = {"n": pl.Int64, "m": pl.Int64, "s": pl.String}
    path.write_text("n,m,s\n1,2,a\nthree,4,b\n5,six,c\n")
    frame = flow.read_csv(path, schema=schema, max_bad_rows=1)
    numbers, bad = frame.select("n").collect(), frame.bad_rows.collect()
    read = columns_read(flow)
    flow.run(on="local")

    assert read == ["n"]
    assert sorted(numbers.result()["n"]) == [1, 5]
    assert bad.result()["text"].to_list() == ["three,4,b"]


def test_the_plan_says_how_many_columns_are_read(tmp_path: Path) -> None:
    """In both forms, where fewer are read than there are."""
    path = tmp_path / "a.csv"
    path.write_text("n,m\n1,2\n")
    flow = ms.Flow("explained")
    flow.read_csv(path).select("n").collect()

    assert "read_csv (1 of 2 columns) -> select" in flow.explain()
    assert "read_csv (1 of 2 columns)" in flow.explain(form="mermaid")


def test_planning_leaves_the_flow_as_it_was(tmp_path: Path) -> None:
    """Two plans of one flow are the same; the second is not made of the first."""
    path = tmp_path / "a.csv"
    path.write_text("n,m\n1,2\n")
    flow = ms.Flow("twice")
    frame = flow.read_csv(path)
    frame.select("n").collect()
    first = columns_read(flow)
    frame.select("m").collect()

    assert first == ["n"]
    assert columns_read(flow) == ["n", "m"]
