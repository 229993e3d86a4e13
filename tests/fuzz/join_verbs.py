"""Joins of records without time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from tests.fuzz.row_verbs import KEY, VALUE
from tests.fuzz.time_verbs import HOWS, joined, same_key
from tests.fuzz.verbs import ROWS, grouped, one_nan, verb

if TYPE_CHECKING:
    from tests.fuzz.verbs import Record

TABLE_HOWS = ("inner", "left", "semi", "anti")


def _table_text(name: str, rows: str) -> str:
    """Return a table as written: one value for every key."""
    return (
        f"{rows}.group_by({KEY}, value={VALUE}, name='{name}.right_by')"
        f".sum(name='{name}.sums').key_by({KEY}, name='{name}.sums_by')"
        f".map({VALUE}, name='{name}.right')"
    )


def _table(rows: list[Record]) -> list[Record]:
    return [
        (group[0][0], sum(r[1] for r in group), 0) for group in grouped(rows).values()
    ]


def _iterated_text(name: str, one: str, other: str, most: int) -> str:
    return (
        f"(({name}_t := {_table_text(name, other)}), {one}.iterate(lambda q: "
        f"q.key_by({KEY}, name='{name}.left_by').map({VALUE}, name='{name}.left')"
        f".join_table({name}_t, how='left', name='{name}.look')"
        f".unkey(name='{name}.pairs')"
        f".map(lambda p: (p[0], p[1][0] + (p[1][1] or 0), 0), name='{name}.made'), "
        f"max_rounds={most}, name={name!r}))[1]"
    )


def _iterated(one: list[Record], other: list[Record], most: int) -> list[Record]:
    table = {one_nan(key): value for key, value, _ in _table(other)}
    return [(k, v + most * table.get(one_nan(k), 0), 0) for k, v, _ in one]


verb(
    "join",
    [ROWS, ROWS],
    ROWS,
    text=lambda name, one, other, how: (
        f"{one}.key_by({KEY}, name='{name}.left_by').map({VALUE}, name='{name}.left')"
        f".join({other}.key_by({KEY}, name='{name}.right_by')"
        f".map({VALUE}, name='{name}.right'), how={how!r}, name={name!r})"
        f".unkey(name='{name}.pairs').map(paired, name='{name}.made')"
    ),
    means=lambda one, other, how: joined(how, one, other, same_key),
    arguments=(st.sampled_from(HOWS),),
    kept=(0,),
)
verb(
    "join_table",
    [ROWS, ROWS],
    ROWS,
    text=lambda name, one, other, how: (
        f"{one}.key_by({KEY}, name='{name}.left_by').map({VALUE}, name='{name}.left')"
        f".join_table({_table_text(name, other)}, how={how!r}, name={name!r})"
        f".unkey(name='{name}.pairs').map(paired, name='{name}.made')"
    ),
    means=lambda one, other, how: joined(how, one, _table(other), same_key),
    arguments=(st.sampled_from(TABLE_HOWS),),
    kept=(0,),
    bounded=(0, 1),
)
verb(
    "join_broadcast",
    [ROWS, ROWS],
    ROWS,
    text=lambda name, one, other, how: (
        f"{one}.join_broadcast({_table_text(name, other)}, {KEY}, how={how!r}, "
        f"name={name!r}).map(lambda m: paired((m[0][0], (m[0][1], m[1])) "
        f"if {how in ('inner', 'left')} else (m[0], m[1])), name='{name}.made')"
    ),
    means=lambda one, other, how: joined(how, one, _table(other), same_key),
    arguments=(st.sampled_from(TABLE_HOWS),),
    kept=(0,),
    bounded=(0, 1),
)
verb(
    "iterate_join",
    [ROWS, ROWS],
    ROWS,
    text=_iterated_text,
    means=_iterated,
    arguments=(st.sampled_from([1, 3]),),
    bounded=(1,),
)
