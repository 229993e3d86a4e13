"""Projection: leaving columns out gives what reading all of them gives.

Method: Hypothesis draws a table, writes it to a file of some kind, and draws branches of
verbs, each of them valid for the columns that are there.  The same flow runs twice: from
the file, where the planner leaves columns out, and from memory, where it does not.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import event, given
from hypothesis import strategies as st
from tests.support.examples import examples

import millstream as ms
from millstream.plan.nodes import Read
from millstream.plan.stages import plan_stages

NAMES = tuple("abcdef")
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int64: st.integers(-9, 9),
    pl.Float64: st.sampled_from([0.5, -2.0, 3.25]),
    pl.String: st.sampled_from(["x", "y,z", 'q"q', "é", "1"]),
    pl.Boolean: st.booleans(),
}
KINDS = st.sampled_from(list(VALUES))
VERBS = (
    *("select", "columns", "with_columns", "filter", "drop", "rename"),
    *("join", "sort", "unique", "map_batches"),
)
WRITERS = {"csv": "csv", "parquet": "parquet", "jsonl": "ndjson"}


@dataclass(slots=True)
class Verb:
    """A verb with its arguments, to be called on frames of two flows."""

    name: str
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    def __call__(self, frame: Any) -> Any:
        return getattr(frame, self.name)(*self.args, **self.named)


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    kinds = {name: draw(KINDS) for name in NAMES[: draw(st.integers(2, 6))]}
    height = draw(st.integers(0, 6))
    columns = {
        name: [draw(st.none() | VALUES[kind]) for _ in range(height)]
        for name, kind in kinds.items()
    }
    return pl.DataFrame(columns, schema=kinds)


def expressions(draw: st.DrawFn, schema: pl.Schema) -> pl.Expr:
    """Return something row-wise of the columns."""
    name = draw(st.sampled_from(schema.names()))
    makers = [
        lambda: pl.col(name),
        lambda: pl.col(name).is_null(),
        lambda: pl.nth(draw(st.integers(0, len(schema) - 1))),
        lambda: pl.concat_str(pl.all().cast(pl.String), ignore_nulls=True),
        lambda: pl.when(pl.first().is_null()).then(pl.col(name)).otherwise(None),
        lambda: pl.struct(pl.col(name), pl.last().alias("last")).struct.field("last"),
    ]
    return draw(st.sampled_from(makers))()


def verbs(  # noqa: PLR0911 - one per kind
    draw: st.DrawFn, schema: pl.Schema
) -> Verb:
    """Return a verb that the columns allow."""
    some = draw(st.lists(st.sampled_from(schema.names()), min_size=1, unique=True))
    kind = draw(st.sampled_from(VERBS))
    match kind:
        case "select":
            return Verb("select", tuple(some))
        case "columns":
            return Verb("select", named={"made": expressions(draw, schema)})
        case "with_columns":
            name = draw(st.sampled_from([*schema.names(), "new"]))
            return Verb("with_columns", named={name: expressions(draw, schema)})
        case "filter":
            return Verb("filter", (expressions(draw, schema).is_not_null(),))
        case "drop" if len(some) < len(schema):
            return Verb("drop", tuple(some))
        case "rename":
            return Verb("rename", ({name: f"{name}_" for name in some},))
        case "join" if "b_right" not in schema:
            on = some[0]
            right = pl.DataFrame({on: pl.Series([None], dtype=schema[on])})
            if on != "b":
                right = right.with_columns(b=pl.lit("joined"))
            return Verb("join", (right, on), {"how": "left"})
        case "sort":
            return Verb("sort", tuple(some))
        case "unique":
            return Verb("unique")
        case _:
            return Verb("map_batches", (lambda batch: batch,))


@st.composite
def branches(draw: st.DrawFn, schema: pl.Schema) -> list[Verb]:
    """Return verbs, and perhaps an aggregation at their end."""
    frame = ms.Flow("schemas").from_frame(pl.DataFrame(schema=schema))
    made: list[Verb] = []
    for _ in range(draw(st.integers(0, 4))):
        made.append(verbs(draw, frame.schema))
        frame = made[-1](frame)
    if draw(st.booleans()):
        key = draw(st.sampled_from(frame.schema.names()))
        value = draw(st.sampled_from(frame.schema.names()))
        made.append(Verb("group_by", (key,)))
        made.append(Verb("agg", (pl.len(), pl.col(value).count().alias("counted"))))
    return made


def answers(frame: Any, drawn: list[list[Verb]]) -> list[Any]:
    handles = []
    for branch in drawn:
        result = frame
        for verb in branch:
            result = verb(result)
        handles.append(result.collect())
    return handles


def in_order(handle: Any) -> list[Any]:
    return sorted(handle.result().rows(), key=repr)


def columns_read(flow: ms.Flow) -> int:
    stages = plan_stages(flow.plan, ms.Config()).stages
    reads = [n.spec for s in stages for n in s.nodes if isinstance(n.spec, Read)]
    source: Any = reads[0].source
    return len(source.schema)


@examples(0.6)
@given(table=tables(), kind=st.sampled_from(list(WRITERS)), data=st.data())
def test_leaving_columns_out_changes_no_answer(
    table: pl.DataFrame, kind: str, data: st.DataObject
) -> None:
    """Of one branch or of several that need different columns."""
    drawn = data.draw(st.lists(branches(table.schema), min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"rows.{kind}")
        getattr(table, f"write_{WRITERS[kind]}")(path)
        schema = {} if kind == "parquet" else {"schema": dict(table.schema)}
        flow = ms.Flow("file")
        found = answers(getattr(flow, f"read_{kind}")(path, **schema), drawn)
        is_narrow = columns_read(flow) < table.width
        flow.run(on="local", workers=2)
    memory = ms.Flow("memory")
    expected = answers(memory.from_frame(table), drawn)
    memory.run(on="local", workers=1)
    event(f"some columns are left out: {is_narrow}")

    assert list(map(in_order, found)) == list(map(in_order, expected))
