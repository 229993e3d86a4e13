"""Operators that remember: any cut into batches gives what plain Python gives.

Method: Hypothesis draws rows and where to cut them into batches; the oracle is the
obvious comprehension, `sorted` or `statistics` call over all rows at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.making import cut, drained, operators

from millstream.config import Config, configured
from millstream.plan import aggregate as aggregates
from millstream.plan import nodes as specs

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.aggregate import Aggregate

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=40)
SIZES = st.lists(st.integers(0, 7), max_size=12)


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def _first(values: list[int]) -> int:
    return values[0]


def _last(values: list[int]) -> int:
    return values[-1]


def _join(left: list[int], right: list[int]) -> list[int]:
    return [*left, *right]


def _appended(items: list[int], value: int) -> list[int]:
    items.append(value)
    return items


AGGREGATES: list[tuple[Aggregate, Callable[[list[int]], Any]]] = [
    (aggregates.builtin("count"), len),
    (aggregates.builtin("sum"), sum),
    (aggregates.builtin("min"), min),
    (aggregates.builtin("max"), max),
    (aggregates.builtin("mean"), _mean),
    (aggregates.builtin("first"), _first),
    (aggregates.builtin("last"), _last),
    (aggregates.builtin("unique"), set),
    (aggregates.reduce(lambda x, y: x + y), sum),
    (aggregates.fold([], _appended), list),
    (aggregates.fold([], _appended, _join), list),
]
ids = [f"{aggregate.name}-{i}" for i, (aggregate, _) in enumerate(AGGREGATES)]


def grouped(pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


@pytest.mark.parametrize(("aggregate", "oracle"), AGGREGATES, ids=ids)
@given(pairs=PAIRS, sizes=SIZES)
def test_aggregate_by_key_equals_the_oracle(
    aggregate: Aggregate,
    oracle: Callable[[list[int]], Any],
    pairs: list[tuple[int, int]],
    sizes: list[int],
) -> None:
    """Where batches end makes no difference."""
    (operator,) = operators([specs.AggregateByKey(aggregate)])

    rows = drained(operator, cut(pairs, sizes))

    assert dict(rows) == {key: oracle(values) for key, values in grouped(pairs).items()}
    assert len(rows) == len(grouped(pairs))


@pytest.mark.parametrize(("aggregate", "oracle"), AGGREGATES, ids=ids)
@given(pairs=PAIRS, sizes=SIZES, keys_max=st.integers(1, 5))
def test_combined_aggregate_by_key_equals_the_oracle(
    aggregate: Aggregate,
    oracle: Callable[[list[int]], Any],
    pairs: list[tuple[int, int]],
    sizes: list[int],
    keys_max: int,
) -> None:
    """Partial results, sent on whenever the combiner is full, merge into the whole."""
    if aggregate.merge is None:
        return
    config = configured(Config(), {"combine_keys_max": keys_max})
    (combiner,) = operators([specs.Combine(aggregate)], config)
    (merger,) = operators([specs.AggregateByKey(aggregate, is_combined=True)])

    parts = drained(combiner, cut(pairs, sizes))
    rows = drained(merger, cut(parts, sizes))

    assert dict(rows) == {key: oracle(values) for key, values in grouped(pairs).items()}


@given(rows=st.lists(st.integers(0, 20), max_size=40), sizes=SIZES)
def test_combined_count_is_fused_with_the_rows_before_it(
    rows: list[int], sizes: list[int]
) -> None:
    """`map`, `group_by` and the combiner of `count` are one loop with one result."""
    chain = operators(
        [
            specs.Map(lambda i: i + 1),
            specs.KeyBy(lambda i: i % 3),
            specs.Combine(aggregates.builtin("count")),
        ]
    )
    assert len(chain) == 1

    counts: Counter[int] = Counter()
    for key, count in drained(chain[0], cut(rows, sizes)):
        counts[key] += count

    assert counts == Counter((row + 1) % 3 for row in rows)


@pytest.mark.parametrize(("aggregate", "oracle"), AGGREGATES, ids=ids)
@given(
    parts=st.lists(st.lists(st.integers(-9, 9), max_size=9), max_size=4), sizes=SIZES
)
def test_global_aggregate_equals_the_oracle_combined_or_not(
    aggregate: Aggregate,
    oracle: Callable[[list[int]], Any],
    parts: list[list[int]],
    sizes: list[int],
) -> None:
    """Every task combines its rows and one task merges; no rows give no result."""
    everything = [row for part in parts for row in part]
    wanted = [oracle(everything)] if everything else []

    (alone,) = operators([specs.AggregateAll(aggregate)])
    assert drained(alone, cut(everything, sizes)) == wanted
    if aggregate.merge is None:
        return
    combined = []
    for part in parts:
        (combiner,) = operators([specs.CombineAll(aggregate)])
        combined += drained(combiner, cut(part, sizes))
    (merger,) = operators([specs.AggregateAll(aggregate, is_combined=True)])
    assert drained(merger, cut(combined, sizes)) == wanted


@given(pairs=PAIRS, sizes=SIZES)
def test_scan_emits_the_aggregate_so_far(
    pairs: list[tuple[int, int]], sizes: list[int]
) -> None:
    """One row out for every row in, in the same order."""
    (operator,) = operators([specs.Scan(aggregates.builtin("mean"))])
    seen: dict[int, list[int]] = defaultdict(list)
    wanted = []
    for key, value in pairs:
        seen[key].append(value)
        wanted.append((key, _mean(seen[key])))

    assert drained(operator, cut(pairs, sizes)) == wanted


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.integers()), max_size=60),
    sizes=SIZES,
    memory_rows=st.integers(1, 9),
    descending=st.booleans(),
    limit=st.none() | st.integers(0, 12),
)
def test_sort_equals_sorted_even_where_runs_wait_on_disk(
    rows: list[tuple[int, int]],
    sizes: list[int],
    memory_rows: int,
    descending: bool,  # noqa: FBT001 - drawn by hypothesis
    limit: int | None,
) -> None:
    """Rows with equal keys stay in the order in which they came."""
    config = configured(Config(), {"sort_memory_rows": memory_rows})
    (operator,) = operators(
        [specs.SortBy(_first_of, is_descending=descending, limit=limit)], config
    )

    result = drained(operator, cut(rows, sizes))

    assert result == sorted(rows, key=_first_of, reverse=descending)[:limit]


def _first_of(row: tuple[int, int]) -> int:
    return row[0]


@given(rows=st.lists(st.integers(), max_size=30), sizes=SIZES, limit=st.integers(0, 35))
def test_limit_passes_the_first_rows_and_knows_when_it_is_satisfied(
    rows: list[int], sizes: list[int], limit: int
) -> None:
    """A satisfied limit lets its task end early."""
    (operator,) = operators([specs.Limit(limit)])

    assert drained(operator, cut(rows, sizes)) == rows[:limit]
    assert operator.is_satisfied == (len(rows) >= limit)


@given(
    left=st.lists(st.integers(), max_size=20),
    right=st.lists(st.text(max_size=1), max_size=20),
    turns=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 6)), max_size=20),
)
def test_zip_pairs_by_position_whatever_arrives_first(
    left: list[int], right: list[str], turns: list[tuple[int, int]]
) -> None:
    """Rows without a partner are dropped at the end."""
    (operator,) = operators([specs.Zip()])
    sides: tuple[list[Any], list[Any]] = (list(left), list(right))
    pairs: list[Any] = []
    for port, size in [*turns, (0, 99), (1, 99)]:
        pairs += operator.process(sides[port][:size], port)
        del sides[port][:size]
    pairs += [row for batch in operator.finish() for row in batch]

    assert pairs == list(zip(left, right, strict=False))


@given(keys=st.lists(st.integers(0, 6), max_size=40), sizes=SIZES)
def test_distinct_keys_pass_once_in_the_order_of_their_first_row(
    keys: list[int], sizes: list[int]
) -> None:
    """Repeated rows are dropped within a batch and across batches."""
    (operator,) = operators([specs.Unique()])

    rows = drained(operator, cut([(key, key) for key in keys], sizes))

    assert rows == list(dict.fromkeys(keys))
