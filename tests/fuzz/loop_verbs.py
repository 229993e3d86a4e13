"""Loops over records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from tests.fuzz.row_verbs import KEY, RECORD, VALUE
from tests.fuzz.verbs import ROWS, grouped, verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.verbs import Record

    Body = Callable[[list[Record]], list[Record]]

NEXT = "lambda r: (r[0], r[1] + 1, r[2])"


def _next(rows: list[Record]) -> list[Record]:
    return [(k, v + 1, t) for k, v, t in rows]


def _sums(rows: list[Record]) -> list[Record]:
    return [(g[0][0], sum(r[1] for r in g), 0) for g in grouped(rows).values()]


_ON = f".map({NEXT}, name='{{name}}.next')"
_SOME = ".filter(lambda r: r[1] % 5, name='{name}.some')"
_SUM = (
    f".group_by({KEY}, value={VALUE}, name='{{name}}.by').sum(name='{{name}}.sum')"
    f".map({RECORD}, name='{{name}}.made')"
)
_INNER = f".iterate(lambda p: p{_ON}, max_rounds=2, name='{{name}}.inner')"
BODIES: dict[str, tuple[str, Body]] = {
    "next": (_ON, _next),
    "shuffled": (f".shuffle(name='{{name}}.mix'){_ON}", _next),
    "filtered": (_SOME + _ON, lambda rows: _next([r for r in rows if r[1] % 5])),
    "summed": (_SUM, _sums),
    "nested": (_INNER, lambda rows: _next(_next(rows))),
}
bodies = st.sampled_from(sorted(BODIES))
rounds = st.sampled_from([1, 2, 3, 5])


def _iterate_text(name: str, rows: str, body: str, most: int, until: int | None) -> str:
    written = BODIES[body][0].format(name=name)
    stop = "" if until is None else (
        f"reduce=lambda a, b: max(a, b, key={VALUE}), until=lambda r: r[1] > {until}, "
    )  # fmt: skip
    return (
        f"{rows}.iterate(lambda q: q{written}, {stop}max_rounds={most}, name={name!r})"
    )


def _iterated(
    rows: list[Record], body: str, most: int, until: int | None
) -> list[Record]:
    for _ in range(most):
        if not rows:
            break
        rows = BODIES[body][1](rows)
        if rows and until is not None and max(r[1] for r in rows) > until:
            break
    return rows


def _cycled(rows: list[Record], most: int) -> list[Record]:
    state = 0
    for _ in range(most):
        state += sum(1 + state % 3 for _ in rows)
    return [("x", state, 0)]


def _looped(rows: list[Record]) -> list[Record]:
    made = []
    for key, value, time in rows:
        halved = value // 2
        while abs(halved) > 10:
            halved //= 2
        made.append((key, halved, time))
    return made


RING = 5


def _improved(rows: list[Record]) -> list[Record]:
    best: dict[int, Any] = {}
    for _, value, _ in rows:
        place = value % RING
        for hops in range(RING):
            there = (place + hops) % RING
            best[there] = min(best.get(there, value + hops), value + hops)
    return [(place, value, 0) for place, value in best.items()]


verb(
    "iterate",
    [ROWS],
    ROWS,
    text=_iterate_text,
    means=_iterated,
    arguments=(bodies, rounds, st.sampled_from([None, None, 3, 1000])),
)
verb(
    "cycle",
    [ROWS],
    ROWS,
    text=lambda name, rows, most: (
        f"{rows}.cycle(0, lambda q, s: q.map(lambda r: 1 + s.value % 3, "
        f"name='{name}.one'), update=lambda s, made: s + sum(made), "
        f"max_rounds={most}, name={name!r})"
        f".map(lambda s: ('x', s, 0), name='{name}.made')"
    ),
    means=_cycled,
    arguments=(rounds,),
)
verb(
    "loop",
    [ROWS],
    ROWS,
    text=lambda name, rows: (
        f"{rows}.loop(lambda q: ((h := q.map(lambda r: (r[0], r[1] // 2, r[2]), "
        f"name='{name}.half')).filter(lambda r: abs(r[1]) > 10, name='{name}.again'), "
        f"h.filter(lambda r: abs(r[1]) <= 10, name='{name}.out')), name={name!r})"
    ),
    means=_looped,
)
verb(
    "delta_iterate",
    [ROWS],
    ROWS,
    text=lambda name, rows: (
        f"{rows}.key_by(lambda r: r[1] % {RING}, name='{name}.by')"
        f".map({VALUE}, name='{name}.value').delta_iterate("
        "lambda known, new: new if known is None or new < known else None, "
        f"lambda q: q.unkey(name='{name}.known')"
        f".key_by(lambda p: (p[0] + 1) % {RING}, name='{name}.on')"
        f".map(lambda p: p[1] + 1, name='{name}.next'), name={name!r})"
        f".unkey(name='{name}.pairs').map({RECORD}, name='{name}.made')"
    ),
    means=_improved,
)
