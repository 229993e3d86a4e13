"""Verbs of frames, with Polars on the whole frame as their meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import strategies as st
from tests.fuzz.data import FRAME_KEYS, FRAME_SCHEMA, frame_of
from tests.fuzz.row_verbs import salts, sizes
from tests.fuzz.time_verbs import (
    HOWS,
    disorders,
    in_windows,
    keyed_arrivals,
    window_aggregates,
    window_text,
    windows,
)
from tests.fuzz.verbs import FRAME, ROWS, called, verb

if TYPE_CHECKING:
    from tests.fuzz.verbs import Record

SCHEMA = '{"k": pl.String, "v": pl.Int64, "t": pl.Int64}'
NO_TIME = 'pl.lit(0, pl.Int64).alias("t")'
MAPS = (
    '((pl.col("v") * 2) % 10007).alias("v")',
    '(-pl.col("v") + 1).alias("v")',
    'pl.col("v").fill_null(-4)',
    'pl.when(pl.col("v") % 2 == 0).then(pl.lit("even")).otherwise("k").alias("k")',
)
FILTERS = ('pl.col("v") > 0', 'pl.col("k").is_not_null()', "pl.lit(False)")
SAME = {
    "columns": '.with_columns(pl.col("v"), name={name!r})',
    "filter": ".filter(pl.lit(True), name={name!r})",
}
TYPES = ("Int64", "Float64")
AGGREGATES = {
    "total": 'pl.col("v").cast(pl.{kind}).sum()',
    "n": "pl.len()",
    "low": 'pl.col("v").cast(pl.{kind}).min()',
    "high": 'pl.col("v").cast(pl.{kind}).max()',
    "sevens": '(pl.col("v") % 7).cast(pl.{kind}).sum()',
    "different": 'pl.col("v").n_unique()',
}
PARSED = {
    "count": "pl.len()",
    "sum": 'pl.col("v").sum()',
    "min": 'pl.col("v").min()',
    "max": 'pl.col("v").max()',
}
BODIES = {
    "next": '.with_columns(pl.col("v") + 1, name={inner!r})',
    "filtered": '.filter(pl.col("v") % 5 != 0, name={inner!r})',
}


def columns(*exprs: str) -> list[pl.Expr]:
    """Return expressions as a program would see them."""
    return [called(expr) for expr in exprs]


def records(frame: pl.DataFrame) -> list[Record]:
    """Return rows as records, without nulls in their values."""
    return [(k, -1 if v is None else v, t) for k, v, t in frame.rows()]


def _aggregate_texts(names: tuple[str, ...], kind: str) -> list[str]:
    return [f'{AGGREGATES[n].format(kind=kind)}.alias("{n}")' for n in names]


def _mixed(names: tuple[str, ...]) -> str:
    """Return one number of all aggregates, whatever their order."""
    parts = [
        f'pl.col("{name}").cast(pl.Int64).fill_null(-1) * {factor}'
        for factor, name in enumerate(sorted(names), 2)
    ]
    return f'(({" + ".join(parts)}) % 1000003).alias("v")'


def _aggregated(frame: pl.DataFrame, names: tuple[str, ...], kind: str) -> pl.DataFrame:
    made = frame.group_by("k").agg(*columns(*_aggregate_texts(names, kind)))
    return made.select(*columns('pl.col("k")', _mixed(names), NO_TIME))


def _aggregate_text(name: str, frame: str, names: tuple[str, ...], kind: str) -> str:
    aggregates = ", ".join(_aggregate_texts(names, kind))
    return (
        f'{frame}.group_by("k", name="{name}.by").agg({aggregates}, name={name!r})'
        f'.select("k", {_mixed(names)}, {NO_TIME}, name="{name}.made")'
    )


def _windowed_text(
    name: str, frame: str, window: tuple[Any, ...], how: str, out_of_order: int
) -> str:
    return (
        f'{frame}.event_time("t", out_of_order={out_of_order}, name="{name}.time")'
        f'.group_by("k", name="{name}.by").window({window_text(window)})'
        f'.agg({PARSED[how]}.cast(pl.Int64).alias("a"), name={name!r})'
        f'.drop_time(name="{name}.untimed")'
        f'.select("k", pl.col("a").alias("v"), {NO_TIME}, name="{name}.made")'
    )


def _windowed(
    frame: pl.DataFrame, window: tuple[Any, ...], how: str, out_of_order: int
) -> pl.DataFrame:
    made = []
    for came in keyed_arrivals(frame.rows(), out_of_order).values():
        for content in in_windows(window, came)[0]:
            values = [v for _, v, _, _ in content if v is not None]
            some = {"min": min, "max": max}.get(how, sum)(values) if values else None
            value = {"count": len(content), "sum": sum(values)}.get(how, some)
            made.append((content[0][0], value, 0))
    return pl.DataFrame(made, FRAME_SCHEMA, orient="row")


def _paired(how: str) -> str:
    if how in {"semi", "anti"}:
        return 'pl.col("v")'
    return (
        '((pl.col("v").fill_null(-5) * 3 + pl.col("w").fill_null(-7)) % 1000003)'
        '.alias("v")'
    )


def _joined(left: pl.DataFrame, right: pl.DataFrame, how: Any) -> pl.DataFrame:
    other = right.select("k", pl.col("v").alias("w"))
    made = left.join(other, on="k", how=how, coalesce=True)
    return made.select(*columns('pl.col("k")', _paired(how), NO_TIME))


def _join_text(join: str, name: str, left: str, right: str, how: str) -> str:
    other = f'{right}.select("k", pl.col("v").alias("w"), name="{name}.other")'
    return (
        f'{left}.{join}({other}, "k", how={how!r}, name={name!r})'
        f'.select("k", {_paired(how)}, {NO_TIME}, name="{name}.made")'
    )


def _iterated(frame: pl.DataFrame, body: str, most: int) -> pl.DataFrame:
    for _ in range(most):
        if body == "next":
            frame = frame.with_columns(pl.col("v") + 1)
        else:
            frame = frame.filter(pl.col("v") % 5 != 0)
    return frame


def _looped(frame: pl.DataFrame) -> pl.DataFrame:
    made = []
    for key, value, time in frame.rows():
        halved = value // 2
        while abs(halved) > 10:
            halved //= 2
        made.append((key, halved, time))
    return pl.DataFrame(made, FRAME_SCHEMA, orient="row")


def _cycled(frame: pl.DataFrame, most: int) -> list[Record]:
    return [("x", most * frame.height, 0)]


def _topped(frame: pl.DataFrame, most: int, *, descending: bool) -> pl.DataFrame:
    order = frame.sort("v", descending=descending, nulls_last=True).head(most)
    return order.select(*columns('pl.lit("x").alias("k")', 'pl.col("v")', NO_TIME))


def _frame_text(name: str, *data: Any) -> str:
    frame = frame_of(*data)
    return f"flow.from_frame(pl.DataFrame({frame.to_dict(as_series=False)}, {SCHEMA}), name={name!r})"


verb(
    "frame",
    (),
    FRAME,
    text=_frame_text,
    means=frame_of,
    arguments=(sizes, st.sampled_from(sorted(FRAME_KEYS)), salts),
)
verb(
    "to_frame",
    [ROWS],
    FRAME,
    text=lambda name, rows: (
        f"{rows}.map(lambda r: {{'k': repr(r[0]), 'v': r[1] % 1000003, 't': r[2]}}, "
        f"name='{name}.dict').to_frame({SCHEMA}, name={name!r})"
    ),
    means=lambda rows: pl.DataFrame(
        [(repr(k), v % 1000003, t) for k, v, t in rows], FRAME_SCHEMA, orient="row"
    ),
)
verb(
    "to_rows",
    [FRAME],
    ROWS,
    text=lambda name, frame: (
        f"{frame}.to_rows(name={name!r}).map(lambda d: "
        f"(d['k'], -1 if d['v'] is None else d['v'], d['t']), name='{name}.made')"
    ),
    means=records,
)
verb(
    "with_columns",
    [FRAME],
    FRAME,
    text=lambda name, frame, e: f"{frame}.with_columns({e}, name={name!r})",
    means=lambda frame, e: frame.with_columns(called(e)),
    arguments=(st.sampled_from(MAPS),),
)
verb(
    "filter_frame",
    [FRAME],
    FRAME,
    text=lambda name, frame, e: f"{frame}.filter({e}, name={name!r})",
    means=lambda frame, e: frame.filter(called(e)),
    arguments=(st.sampled_from(FILTERS),),
)
verb(
    "same_frame",
    [FRAME],
    FRAME,
    text=lambda name, frame, how: f"{frame}{SAME[how].format(name=name)}",
    means=lambda frame, how: frame,
    arguments=(st.sampled_from(sorted(SAME)),),
)
verb(
    "union",
    [FRAME, FRAME],
    FRAME,
    text=lambda name, one, other: f"{one}.union({other}, name={name!r})",
    means=lambda one, other: pl.concat([one, other]),
)
verb(
    "unique_frame",
    [FRAME],
    FRAME,
    text=lambda name, frame: f"{frame}.unique(name={name!r})",
    means=lambda frame: frame.unique(),
)
verb(
    "agg",
    [FRAME],
    FRAME,
    text=_aggregate_text,
    means=_aggregated,
    arguments=(
        st.lists(
            st.sampled_from(sorted(AGGREGATES)), min_size=2, max_size=3, unique=True
        ).map(tuple),
        st.sampled_from(TYPES),
    ),
    kept=(0, 1),
)
verb(
    "top_frame",
    [FRAME],
    FRAME,
    text=lambda name, frame, most, descending: (
        f'{frame}.sort("v", descending={descending}, nulls_last=True, '
        f'name="{name}.order").limit({most}, name={name!r})'
        f'.select(pl.lit("x").alias("k"), "v", {NO_TIME}, name="{name}.blank")'
    ),
    means=lambda frame, most, descending: _topped(frame, most, descending=descending),
    arguments=(st.sampled_from([1, 7, 100]), st.booleans()),
)
verb(
    "limit_frame",
    [FRAME],
    FRAME,
    text=lambda name, frame, most: (
        f'{frame}.limit({most}, name={name!r}).with_columns(pl.lit("x").alias("k"), '
        f'pl.lit(1, pl.Int64).alias("v"), {NO_TIME}, name="{name}.blank")'
    ),
    means=lambda frame, most: pl.DataFrame(
        [("x", 1, 0)] * min(most, frame.height), FRAME_SCHEMA, orient="row"
    ),
    arguments=(st.sampled_from([0, 1, 7, 100]),),
)
verb(
    "windowed_frame",
    [FRAME],
    FRAME,
    text=_windowed_text,
    means=_windowed,
    arguments=(windows, window_aggregates, disorders),
    kept=(0, 1),
    is_ordered=True,
)
verb(
    "keyed_join",
    [FRAME, FRAME],
    FRAME,
    text=lambda *given: _join_text("keyed_join", *given),
    means=_joined,
    arguments=(st.sampled_from(HOWS),),
    kept=(0,),
)
verb(
    "join_frame",
    [FRAME, FRAME],
    FRAME,
    text=lambda *given: _join_text("join", *given),
    means=_joined,
    arguments=(st.sampled_from(["inner", "left", "semi", "anti"]),),
    kept=(0,),
    bounded=(1,),
)
verb(
    "iterate_frame",
    [FRAME],
    FRAME,
    text=lambda name, frame, body, most: (
        f"{frame}.iterate(lambda q: q{BODIES[body].format(inner=f'{name}.step')}, "
        f"max_rounds={most}, name={name!r})"
    ),
    means=_iterated,
    arguments=(st.sampled_from(sorted(BODIES)), st.sampled_from([1, 3])),
)
verb(
    "loop_frame",
    [FRAME],
    FRAME,
    text=lambda name, frame: (
        f"{frame}.filter(pl.col('v').is_not_null(), name='{name}.some').loop(lambda q: "
        f"((h := q.with_columns(pl.col('v') // 2, name='{name}.half'))"
        f".filter(pl.col('v').abs() > 10, name='{name}.again'), "
        f"h.filter(pl.col('v').abs() <= 10, name='{name}.out')), name={name!r})"
    ),
    means=lambda frame: _looped(frame.filter(pl.col("v").is_not_null())),
)
verb(
    "cycle_frame",
    [FRAME],
    ROWS,
    text=lambda name, frame, most: (
        f"{frame}.cycle(0, lambda q, s: q.select('v', name='{name}.one'), "
        f"update=lambda s, made: s + made.height, max_rounds={most}, name={name!r})"
        f".map(lambda s: ('x', s, 0), name='{name}.made')"
    ),
    means=_cycled,
    arguments=(st.sampled_from([1, 3]),),
)
