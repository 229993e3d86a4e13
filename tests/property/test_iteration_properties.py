"""Iterations and loops give what plain Python gives, for any rows and number of workers.

Method: Hypothesis draws rows, the number of rounds and of workers, and a body out of all
kinds of operators; the model applies the same body to a list as often.  Batches are small,
so that rounds span several of them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    Body = Callable[[ms.Stream[int]], ms.Stream[int]]
    Model = Callable[[list[int]], list[int]]

WORKERS = st.sampled_from([1, 2, 3, 7])
ROWS = st.lists(st.integers(-50, 50), max_size=30)
LIMIT = 1_000


def tamed(i: int) -> int:
    """Keep numbers small, whatever a body makes of them."""
    return i % LIMIT


def sums_by_key(rows: list[int]) -> dict[int, int]:
    sums: dict[int, int] = defaultdict(int)
    for i in rows:
        sums[i % 4] += i
    return sums


BODIES: dict[str, tuple[Body, Model]] = {
    "identity": (lambda rows: rows, lambda rows: rows),
    "map": (
        lambda rows: rows.map(lambda i: tamed(i * 3 + 1)),
        lambda rows: [tamed(i * 3 + 1) for i in rows],
    ),
    "drop some": (
        lambda rows: rows.filter(lambda i: i % 3).shuffle(),
        lambda rows: [i for i in rows if i % 3],
    ),
    "drop all": (lambda rows: rows.filter(lambda _: False), lambda _: []),
    "sum by key": (
        lambda rows: rows.group_by(lambda i: i % 4).sum().map(lambda p: tamed(p[1])),
        lambda rows: [tamed(total) for total in sums_by_key(rows).values()],
    ),
    "fold by key": (
        lambda rows: (
            rows.group_by(lambda i: i % 4)
            .fold(1, lambda total, i: total + i)
            .map(lambda p: tamed(p[1]))
        ),
        lambda rows: [tamed(total + 1) for total in sums_by_key(rows).values()],
    ),
    "distinct": (
        lambda rows: rows.map(lambda i: i // 2).unique(),
        lambda rows: list({i // 2 for i in rows}),
    ),
    "least": (
        lambda rows: rows.sort_by(lambda i: i).limit(5).map(lambda i: i + 1),
        lambda rows: [i + 1 for i in sorted(rows)[:5]],
    ),
    "first of a limit": (
        lambda rows: rows.map(lambda _: 7).limit(3),
        lambda rows: [7] * min(3, len(rows)),
    ),
    "branches": (
        lambda rows: rows.map(lambda i: i + 1).merge(rows.filter(lambda i: i > 20)),
        lambda rows: [i + 1 for i in rows] + [i for i in rows if i > 20],
    ),
    "running count": (
        lambda rows: (
            rows.key_by(lambda i: i % 2)
            .map(lambda _: 1)
            .scan(lambda total, one: total + one)
            .drop_key()
        ),
        lambda rows: [
            n + 1 for k in (0, 1) for n in range(sum(i % 2 == k for i in rows))
        ],
    ),
    "nested": (
        lambda rows: rows.iterate(
            lambda inner: inner.map(lambda i: tamed(i * 2)).shuffle(), max_rounds=2
        ),
        lambda rows: [tamed(tamed(i * 2) * 2) for i in rows],
    ),
}


def run(flow: ms.Flow, workers: int) -> None:
    flow.run(on="local", workers=workers, source_batch_rows=4, buffer=ms.fixed(3))


@pytest.mark.parametrize("name", BODIES)
@examples(0.12)
@given(rows=ROWS, rounds=st.integers(0, 3), workers=WORKERS)
def test_iterate_is_the_body_applied_again_and_again(
    name: str, rows: list[int], rounds: int, workers: int
) -> None:
    """Whatever the body keeps, it begins every round without."""
    body, model = BODIES[name]
    flow = ms.Flow("iterate")
    found = flow.from_iterable(rows).iterate(body, max_rounds=rounds).collect()

    run(flow, workers)

    expected = list(rows)
    for _ in range(rounds):
        expected = model(expected)
    assert sorted(found.result()) == sorted(expected)


@examples(0.25)
@given(rows=ROWS, bound=st.integers(0, 400), workers=WORKERS)
def test_iterate_stops_by_what_it_reduced(
    rows: list[int], bound: int, workers: int
) -> None:
    """After the first round for which it is true, or when nothing is left."""
    flow = ms.Flow("until")
    found = (
        flow.from_iterable(rows)
        .iterate(
            lambda rows: rows.map(lambda i: abs(i) * 2 + 1),
            reduce=lambda a, b: a + b,
            until=lambda total: total > bound,
        )
        .collect()
    )

    run(flow, workers)

    expected = list(rows)
    while expected:
        expected = [abs(i) * 2 + 1 for i in expected]
        if sum(expected) > bound:
            break
    assert sorted(found.result()) == sorted(expected)


@examples(0.25)
@given(rows=ROWS, rounds=st.integers(0, 4), workers=WORKERS, shuffles=st.booleans())
def test_cycle_shows_every_round_the_state_of_the_last(
    *, rows: list[int], rounds: int, workers: int, shuffles: bool
) -> None:
    """Behind a shuffle too, where a row may come before the state does."""

    def body(rows: ms.Stream[int], state: ms.RoundState[int]) -> ms.Stream[int]:
        moved = rows.shuffle() if shuffles else rows
        return moved.map(lambda i: (i * 5 + state.value) % 13)

    flow = ms.Flow("cycle")
    found = flow.from_iterable(rows).cycle(
        2, body, lambda state, made: state + sum(made) + 1, max_rounds=rounds
    )
    handle = found.collect()

    run(flow, workers)

    state = 2
    for _ in range(rounds):
        state += sum((i * 5 + state) % 13 for i in rows) + 1
    assert handle.result() == [state]


@examples(0.25)
@given(
    edges=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20),
    workers=WORKERS,
)
def test_delta_iterate_finds_the_components_of_a_graph(
    edges: list[tuple[int, int]], workers: int
) -> None:
    """As rows and as data frames, beside a search from every vertex."""
    beside: dict[int, set[int]] = {v: {v} for edge in edges for v in edge}
    for one, other in edges:
        beside[one].add(other)
        beside[other].add(one)
    flow = ms.Flow("components")
    rows = (
        flow.from_iterable(sorted(beside))
        .key_by(lambda v: v)
        .delta_iterate(
            lambda known, new: new if known is None or new < known else None,
            lambda better: (
                better.unkey()
                .flat_map(lambda p: [(v, p[1]) for v in beside[p[0]]])
                .key_by(lambda p: p[0])
                .map(lambda p: p[1])
            ),
        )
        .collect()
    )
    labels = pl.DataFrame(
        {"v": sorted(beside), "label": sorted(beside)},
        schema={"v": pl.Int64, "label": pl.Int64},
    )
    ways = pl.DataFrame(
        [(v, w) for v, all_beside in beside.items() for w in all_beside],
        schema={"v": pl.Int64, "w": pl.Int64},
        orient="row",
    )
    frames = (
        flow.from_frame(labels)
        .delta_iterate(
            "v",
            pl.col("label").min(),
            lambda better: better.join(ways, "v").select(v=pl.col("w"), label="label"),
        )
        .collect()
    )

    run(flow, workers)

    def least(vertex: int) -> int:
        seen, left = {vertex}, [vertex]
        while left:
            new = beside[left.pop()] - seen
            seen |= new
            left += new
        return min(seen)

    expected = {v: least(v) for v in beside}
    assert dict(rows.result()) == expected
    assert dict(frames.result().rows()) == expected


@examples(0.25)
@given(rows=st.lists(st.integers(0, 200), max_size=30), workers=WORKERS)
def test_loop_lets_every_row_out_when_it_has_gone_round_often_enough(
    rows: list[int], workers: int
) -> None:
    """Rows become two, and each goes its own number of times round."""

    def split(rows: ms.Stream[int]) -> tuple[ms.Stream[int], ms.Stream[int]]:
        halves = rows.flat_map(lambda i: (i // 2, i - i // 2)).shuffle()
        return halves.filter(lambda i: i > 5), halves.filter(lambda i: i <= 5)

    flow = ms.Flow("loop")
    found = flow.from_iterable(rows).loop(split, max_hops=10).collect()

    run(flow, workers)

    left, expected = list(rows), []
    while left:
        halves = [half for i in left for half in (i // 2, i - i // 2)]
        left = [i for i in halves if i > 5]
        expected += [i for i in halves if i <= 5]
    assert sorted(found.result()) == sorted(expected)
