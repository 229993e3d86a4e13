"""Random flows on the local launcher: any number of workers gives the same rows.

Method: Hypothesis draws a program of verbs over streams of numbers.  Every verb comes
with its meaning over a plain list; the rows that reach the sinks must be the same
multiset, at every number of workers and with tiny buffers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    Numbers = ms.Stream[int]
    Verb = tuple[Callable[[Numbers], Numbers], Callable[[list[int]], list[int]]]


def _sums(rows: list[int], key: Callable[[int], int]) -> list[int]:
    sums: Counter[int] = Counter()
    for row in rows:
        sums[key(row)] += row
    return list(sums.values())


def _same(rows: list[int]) -> list[int]:
    return rows


def _value(pair: tuple[Any, int]) -> int:
    return pair[1]


VERBS: dict[str, Verb] = {
    "map": (lambda s: s.map(lambda i: 3 * i), lambda rows: [3 * i for i in rows]),
    "filter": (
        lambda s: s.filter(lambda i: i % 2),
        lambda rows: [i for i in rows if i % 2],
    ),
    "flat_map": (
        lambda s: s.flat_map(lambda i: [i, -i]),
        lambda rows: [x for i in rows for x in (i, -i)],
    ),
    "filter_map": (
        lambda s: s.filter_map(lambda i: i if i > 0 else None),
        lambda rows: [i for i in rows if i > 0],
    ),
    "map_batches": (
        lambda s: s.map_batches(lambda rows: [i + 1 for i in rows]),
        lambda rows: [i + 1 for i in rows],
    ),
    "shuffle": (lambda s: s.shuffle(), _same),
    "repartition_by": (lambda s: s.repartition_by(lambda i: i), _same),
    "max_parallelism": (lambda s: s.max_parallelism(2), _same),
    "buffered": (lambda s: s.buffered(ms.adaptive(2, "1ms")).shuffle(), _same),
    "key_by": (
        lambda s: s.key_by(lambda i: i % 5).map(lambda i: i + 2).drop_key(),
        lambda rows: [i + 2 for i in rows],
    ),
    "group_by": (
        lambda s: s.group_by(lambda i: i % 3).sum().map(_value),
        lambda rows: _sums(rows, lambda i: i % 3),
    ),
    "fold": (
        lambda s: s.group_by(lambda i: i % 3).fold(0, lambda n, i: n + i).map(_value),
        lambda rows: _sums(rows, lambda i: i % 3),
    ),
    "unique": (lambda s: s.unique(), lambda rows: list(set(rows))),
    "merge": (
        lambda s: s.merge(s.map(lambda i: i + 100)),
        lambda rows: [*rows, *(i + 100 for i in rows)],
    ),
    "top": (
        lambda s: s.sort_by(lambda i: -i).limit(4),
        lambda rows: sorted(rows, reverse=True)[:4],
    ),
}


@examples(0.6)
@given(
    rows=st.lists(st.integers(-50, 50), max_size=30),
    is_parallel=st.booleans(),
    verbs=st.lists(st.sampled_from(sorted(VERBS)), max_size=6),
    workers=st.integers(1, 4),
    buffer_rows=st.integers(1, 5),
)
def test_random_flow_gives_the_rows_of_the_oracle(
    rows: list[int],
    is_parallel: bool,  # noqa: FBT001 - drawn by hypothesis
    verbs: list[str],
    workers: int,
    buffer_rows: int,
) -> None:
    """Stages, routing, combining and early ends change where rows go, not what."""
    flow = ms.Flow("random", buffer=ms.fixed(buffer_rows))
    stream: Numbers = (
        flow.from_parallel(lambda rank, size: rows[rank::size])
        if is_parallel
        else flow.from_iterable(rows)
    )
    wanted = rows
    for verb in verbs:
        build, oracle = VERBS[verb]
        stream, wanted = build(stream), oracle(wanted)
    result, count = stream.collect(), stream.count()

    flow.run(on="local", workers=workers, source_batch_rows=3, local_channel_batches=1)

    assert Counter(result.result()) == Counter(wanted)
    assert count.result() == len(wanted)
