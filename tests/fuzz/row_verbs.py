"""Sources of records, and verbs that need neither time, a second stream nor a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from tests.fuzz.data import KEYS, SIZES, records_of
from tests.fuzz.verbs import ROWS, called, grouped, verb

if TYPE_CHECKING:
    from tests.fuzz.verbs import Record

KEY = "lambda r: r[0]"
VALUE = "lambda r: r[1]"
RECORD = "lambda p: (p[0], p[1], 0)"
BLANK = "lambda r: ('x', 1, 0)"

MAPS = (
    "lambda r: (r[0], r[1] + 1, r[2])",
    "lambda r: (r[0], -2 * r[1], r[2])",
    "lambda r: (r[1] % 3, r[1], r[2])",
    "lambda r: ('all', r[1], -r[2])",
)
FILTERS = ("lambda r: r[1] > 0", "lambda r: r[1] % 2 == 0", "lambda r: False")
FLAT_MAPS = (
    "lambda r: [r, r]",
    "lambda r: [(r[0], i, r[2]) for i in range(r[1] % 3)]",
)
SAME = {
    "map": ".map(lambda r: r, name={name!r})",
    "filter": ".filter(lambda r: True, name={name!r})",
    "shuffle": ".shuffle(name={name!r})",
}
AGGREGATES: dict[str, Any] = {
    "count": len,
    "sum": sum,
    "min": min,
    "max": max,
    "unique": lambda values: len(set(values)),
    "fold": lambda values: sum(v * v for v in values),
    "merged fold": lambda values: sum(v * v for v in values),
    "reduce": lambda values: sum(values) % 1009,
}
_AGGREGATING = {
    "fold": ".fold(0, lambda total, v: total + v * v, name={name!r})",
    "merged fold": (
        ".fold(0, lambda total, v: total + v * v, "
        "merge=lambda a, b: a + b, name={name!r})"
    ),
    "reduce": ".reduce(lambda a, b: a + b, name={name!r})",
}
_MADE = {
    "unique": "lambda p: (p[0], len(p[1]), 0)",
    "reduce": "lambda p: (p[0], p[1] % 1009, 0)",
}

sizes = st.sampled_from(SIZES)
keys = st.sampled_from(sorted(KEYS))
salts = st.integers(0, 50)


def parts_of(sizes: tuple[int, ...], keys: str, salt: int) -> list[list[Record]]:
    """Return the records of every part of a parallel source."""
    return [records_of(size, keys, salt + i) for i, size in enumerate(sizes)]


def _grouped_text(name: str, rows: str, how: str) -> str:
    aggregating = _AGGREGATING.get(how, f".{how}(name={{name!r}})").format(name=name)
    return (
        f"{rows}.group_by({KEY}, value={VALUE}, name='{name}.by'){aggregating}"
        f".map({_MADE.get(how, RECORD)}, name='{name}.made')"
    )


def _grouped(rows: list[Record], how: str) -> list[Record]:
    return [
        (group[0][0], AGGREGATES[how]([r[1] for r in group]), 0)
        for group in grouped(rows).values()
    ]


def running_counts(rows: list[Record]) -> list[Record]:
    """Return how manieth of its key every record is."""
    return [
        (group[0][0], number, 0)
        for group in grouped(rows).values()
        for number in range(1, len(group) + 1)
    ]


verb(
    "iterable",
    (),
    ROWS,
    text=lambda name, *data: f"flow.from_iterable({records_of(*data)}, name={name!r})",
    means=records_of,
    arguments=(sizes, keys, salts),
)
verb(
    "parallel",
    (),
    ROWS,
    text=lambda name, *data: (
        f"flow.from_parallel(lambda rank, size: [r for part in {parts_of(*data)}"
        f"[rank::size] for r in part], name={name!r})"
    ),
    means=lambda *data: [r for part in parts_of(*data) for r in part],
    arguments=(st.sampled_from([(2, 40), (1, 12, 40), (0, 60), (30, 30)]), keys, salts),
)
verb(
    "map",
    [ROWS],
    ROWS,
    text=lambda name, rows, f: f"{rows}.map({f}, name={name!r})",
    means=lambda rows, f: [called(f)(r) for r in rows],
    arguments=(st.sampled_from(MAPS),),
)
verb(
    "filter",
    [ROWS],
    ROWS,
    text=lambda name, rows, f: f"{rows}.filter({f}, name={name!r})",
    means=lambda rows, f: [r for r in rows if called(f)(r)],
    arguments=(st.sampled_from(FILTERS),),
)
verb(
    "flat_map",
    [ROWS],
    ROWS,
    text=lambda name, rows, f: f"{rows}.flat_map({f}, name={name!r})",
    means=lambda rows, f: [made for r in rows for made in called(f)(r)],
    arguments=(st.sampled_from(FLAT_MAPS),),
)
verb(
    "same",
    [ROWS],
    ROWS,
    text=lambda name, rows, how: f"{rows}{SAME[how].format(name=name)}",
    means=lambda rows, how: rows,
    arguments=(st.sampled_from(sorted(SAME)),),
)
verb(
    "merge",
    [ROWS, ROWS],
    ROWS,
    text=lambda name, one, other: f"{one}.merge({other}, name={name!r})",
    means=lambda one, other: one + other,
)
verb(
    "unique",
    [ROWS],
    ROWS,
    text=lambda name, rows: (
        f"{rows}.filter(lambda r: r[0] == r[0], name='{name}.no_nan')"
        f".unique(name={name!r})"
    ),
    means=lambda rows: list(dict.fromkeys(r for r in rows if r[0] == r[0])),
)
verb(
    "grouped",
    [ROWS],
    ROWS,
    text=_grouped_text,
    means=_grouped,
    arguments=(st.sampled_from(sorted(AGGREGATES)),),
    kept=(0,),
)
verb(
    "scan",
    [ROWS],
    ROWS,
    text=lambda name, rows: (
        f"{rows}.key_by({KEY}, name='{name}.by')"
        f".scan(lambda n, r: n + 1, initial=0, name={name!r})"
        f".unkey(name='{name}.pairs').map({RECORD}, name='{name}.made')"
    ),
    means=running_counts,
)
verb(
    "map_with_state",
    [ROWS],
    ROWS,
    text=lambda name, rows: (
        f"{rows}.key_by({KEY}, name='{name}.by')"
        f".map_with_state(0, lambda n, r: (n + 1, n + 1), name={name!r})"
        f".unkey(name='{name}.pairs').map({RECORD}, name='{name}.made')"
    ),
    means=running_counts,
)
verb(
    "process",
    [ROWS],
    ROWS,
    text=lambda name, rows: (
        f"{rows}.key_by({KEY}, name='{name}.by').process(Counting(), name={name!r})"
        f".unkey(name='{name}.pairs').map({RECORD}, name='{name}.made')"
    ),
    means=lambda rows: _grouped(rows, "count"),
)
verb(
    "limit",
    [ROWS],
    ROWS,
    text=lambda name, rows, most: (
        f"{rows}.limit({most}, name={name!r}).map({BLANK}, name='{name}.blank')"
    ),
    means=lambda rows, most: [("x", 1, 0)] * min(most, len(rows)),
    arguments=(st.sampled_from([0, 1, 7, 100]),),
)
verb(
    "top",
    [ROWS],
    ROWS,
    text=lambda name, rows, most, descending: (
        f"{rows}.sort_by({VALUE}, descending={descending}, name='{name}.order')"
        f".limit({most}, name={name!r})"
        f".map(lambda r: ('x', r[1], 0), name='{name}.blank')"
    ),
    means=lambda rows, most, descending: [
        ("x", value, 0)
        for value in sorted((r[1] for r in rows), reverse=descending)[:most]
    ],
    arguments=(st.sampled_from([1, 7, 100]), st.booleans()),
)
verb(
    "zip",
    [ROWS, ROWS],
    ROWS,
    text=lambda name, one, other: (
        f"{one}.zip({other}, name={name!r}).map({BLANK}, name='{name}.blank')"
    ),
    means=lambda one, other: [("x", 1, 0)] * min(len(one), len(other)),
)
