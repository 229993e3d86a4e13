"""Windows and joins in event time, on records.

Rows are late by the order of one source alone, so that the meaning is exact: a record is
too late for what ends before the promise that the records before it have made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from tests.fuzz.row_verbs import AGGREGATES, KEY, RECORD, VALUE
from tests.fuzz.verbs import ALL_DISORDER, ROWS, called, grouped, one_nan, verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.verbs import Record

WINDOWS = (
    ("tumbling", 30),
    ("tumbling", 100),
    ("sliding", 40, 20),
    ("sliding", 10, 25),
    ("session", 8),
    ("session", 40),
)
HOWS = ("inner", "left", "right", "full", "semi", "anti")

windows = st.sampled_from(WINDOWS)
disorders = st.sampled_from([0, 5, 60, ALL_DISORDER])
window_aggregates = st.sampled_from(["count", "sum", "min", "max"])

Came = tuple[Any, Any, int, int]
"""Key, value, timestamp and promise."""


def window_text(window: tuple[Any, ...]) -> str:
    """Return how a window is written."""
    return f"ms.windows.{window[0]}({', '.join(map(str, window[1:]))})"


def arrivals(rows: list[Record], out_of_order: int) -> Iterator[Came]:
    """Return records with what those before them have promised."""
    promised = -(2**62)
    for key, value, time in rows:
        yield key, value, time, promised
        promised = max(promised, time - out_of_order - 1)


def in_windows(
    window: tuple[Any, ...], came: list[Came]
) -> tuple[list[list[Came]], list[Came]]:
    """Return the content of all windows of one key, and what is too late for all."""
    if window[0] == "session":
        return _in_sessions(window[1], came)
    size, slide = window[1], window[-1]
    found: dict[int, list[Came]] = {}
    late = []
    for arrival in came:
        _, _, time, promised = arrival
        starts = [s for s in range(time - size + 1, time + 1) if s % slide == 0]
        taken = [start for start in starts if start + size - 1 > promised]
        for start in taken:
            found.setdefault(start, []).append(arrival)
        if starts and not taken:
            late.append(arrival)
    return list(found.values()), late


def _in_sessions(gap: int, came: list[Came]) -> tuple[list[list[Came]], list[Came]]:
    pieces, late = [], []
    for arrival in came:
        _, _, time, promised = arrival
        start = max(time, promised + 1)
        if start >= time + gap:
            late.append(arrival)
        else:
            pieces.append((start, time + gap, arrival))
    sessions: list[list[Came]] = []
    end_before = None
    for start, end, arrival in sorted(pieces, key=lambda piece: piece[:2]):
        if end_before is None or start >= end_before:
            sessions.append([])
            end_before = end
        sessions[-1].append(arrival)
        end_before = max(end_before, end)
    return sessions, late


def keyed_arrivals(rows: list[Record], out_of_order: int) -> dict[Any, list[Came]]:
    """Return arrivals by key."""
    groups: dict[Any, list[Came]] = {}
    for came in arrivals(rows, out_of_order):
        groups.setdefault(one_nan(came[0]), []).append(came)
    return groups


def _windowed(
    rows: list[Record], window: tuple[Any, ...], how: str, out_of_order: int
) -> list[Record]:
    made = []
    for came in keyed_arrivals(rows, out_of_order).values():
        contents, late = in_windows(window, came)
        made += [
            (content[0][0], AGGREGATES[how]([v for _, v, _, _ in content]), 0)
            for content in contents
        ]
        made += [(key, value, time) for key, value, time, _ in late]
    return made


def _windowed_text(
    name: str, rows: str, window: tuple[Any, ...], how: str, out_of_order: int
) -> str:
    timed = f"{rows}.event_time(lambda r: r[2], out_of_order={out_of_order}, name='{name}.time')"
    late = "lambda l: (l.key, l.value, l.timestamp)"
    return (
        f"({name}_w := {timed}.key_by({KEY}, name='{name}.by')"
        f".map({VALUE}, name='{name}.value').window({window_text(window)})"
        f".{how}(name={name!r})).unkey(name='{name}.pairs')"
        f".drop_time(name='{name}.untimed').map({RECORD}, name='{name}.made')"
        f".merge({name}_w.late(name='{name}.late')"
        f".map({late}, name='{name}.late_made'), name='{name}.both')"
    )


def _count_windowed(rows: list[Record], size: int) -> list[Record]:
    made: list[Record] = []
    for group in grouped(rows).values():
        key, count = group[0][0], len(group)
        made += [(key, size, 0)] * (count // size)
        made += [(key, count % size, 0)] if count % size else []
    return made


def _sides(name: str, one: str, other: str) -> tuple[str, str]:
    """Return both inputs of a timed join as written."""
    left, right = (
        f"{rows}.event_time(lambda r: r[2], out_of_order={ALL_DISORDER}, "
        f"name='{name}.{side}_time').key_by({KEY}, name='{name}.{side}_by')"
        f".map({VALUE}, name='{name}.{side}')"
        for rows, side in ((one, "left"), (other, "right"))
    )
    return left, right


_ENDING = (
    ".unkey(name='{name}.pairs').drop_time(name='{name}.untimed')"
    ".map(paired, name='{name}.made')"
)


def joined(how: str, one: list[Any], other: list[Any], meet: Any) -> list[Any]:
    """Return what a join makes of pairs of key and value that `meet`."""
    made: list[Any] = []
    met: set[int] = set()
    for left in one:
        partners = [i for i, right in enumerate(other) if meet(left, right)]
        met.update(partners)
        if how == ("semi" if partners else "anti"):
            made.append((left[0], left[1]))
        elif how in {"semi", "anti"}:
            continue
        elif partners:
            made += [(left[0], (left[1], other[i][1])) for i in partners]
        elif how in {"left", "full"}:
            made.append((left[0], (left[1], None)))
    if how in {"right", "full"}:
        alone = [right for i, right in enumerate(other) if i not in met]
        made += [(right[0], (None, right[1])) for right in alone]
    return [called("paired")(pair) for pair in made]


def same_key(one: Record, other: Record) -> bool:
    """Return whether two records have one key."""
    return bool(one[0] == other[0] or (one[0] != one[0] and other[0] != other[0]))


def _window_joined(
    one: list[Record], other: list[Record], how: str, size: int
) -> list[Record]:
    starts = {r[2] // size for r in (*one, *other)}
    return [
        made
        for start in starts
        for made in joined(
            how,
            [r for r in one if r[2] // size == start],
            [r for r in other if r[2] // size == start],
            same_key,
        )
    ]


def _interval_joined(
    one: list[Record], other: list[Record], how: str, bounds: tuple[int, int]
) -> list[Record]:
    return joined(
        how,
        one,
        other,
        lambda a, b: same_key(a, b) and bounds[0] <= b[2] - a[2] <= bounds[1],
    )


def _asof_joined(one: list[Record], other: list[Record], how: str) -> list[Record]:
    made: list[Any] = []
    for left in one:
        near = [(r[2], r[1]) for r in other if same_key(left, r) and r[2] <= left[2]]
        if near:
            made.append((left[0], (left[1], max(near)[1])))
        elif how == "left":
            made.append((left[0], (left[1], None)))
    return [called("paired")(pair) for pair in made]


verb(
    "windowed",
    [ROWS],
    ROWS,
    text=_windowed_text,
    means=_windowed,
    arguments=(windows, window_aggregates, disorders),
    kept=(0, 1),
    is_ordered=True,
)
verb(
    "count_windowed",
    [ROWS],
    ROWS,
    text=lambda name, rows, size: (
        f"{rows}.key_by({KEY}, name='{name}.by')"
        f".window(ms.windows.count({size}, exact=False)).count(name={name!r})"
        f".unkey(name='{name}.pairs').map({RECORD}, name='{name}.made')"
    ),
    means=_count_windowed,
    arguments=(st.sampled_from([1, 3, 10]),),
    kept=(0,),
)
verb(
    "window_join",
    [ROWS, ROWS],
    ROWS,
    text=lambda name, one, other, how, size: (
        "{}.window_join({}, ms.windows.tumbling({}), how={!r}, name={!r})".format(
            *_sides(name, one, other), size, how, name
        )
        + _ENDING.format(name=name)
    ),
    means=_window_joined,
    arguments=(st.sampled_from(HOWS), st.sampled_from([20, 100])),
    kept=(0, 1),
)
verb(
    "interval_join",
    [ROWS, ROWS],
    ROWS,
    text=lambda name, one, other, how, bounds: (
        "{}.interval_join({}, {}, {}, how={!r}, name={!r})".format(
            *_sides(name, one, other), *bounds, how, name
        )
        + _ENDING.format(name=name)
    ),
    means=_interval_joined,
    arguments=(st.sampled_from(HOWS), st.sampled_from([(0, 20), (-30, 5)])),
    kept=(0, 1),
)
verb(
    "asof_join",
    [ROWS, ROWS],
    ROWS,
    text=lambda name, one, other, how: (
        "{}.asof_join({}, how={!r}, name={!r})".format(
            *_sides(name, one, other), how, name
        )
        + _ENDING.format(name=name)
    ),
    means=_asof_joined,
    arguments=(st.sampled_from(["inner", "left"]),),
    kept=(0,),
)
