"""What a type checker must infer about flows; mypy reads this, nobody runs it."""

from __future__ import annotations

from collections import Counter
from typing import Any, assert_type

import millstream as ms


class Running(ms.StatefulFunction[str, int, float]):
    """Averages so far."""

    total = ms.ValueState[int](default=0)
    values = ms.ListState[int]()
    seen = ms.MapState[str, int]()

    def on_record(self, key: str, value: int) -> list[float]:
        assert_type(self.total.get(), int)
        assert_type(self.values.get(), list[int])
        assert_type(self.seen.get(key), int | None)
        return [value / 2]


def sources(flow: ms.Flow) -> None:
    assert_type(flow.from_iterable([1, 2]), ms.Stream[int])
    assert_type(flow.from_iterable("ab"), ms.Stream[str])
    assert_type(flow.from_iterable(lambda: iter([1.5])), ms.Stream[float])
    assert_type(flow.from_parallel(lambda rank, size: range(rank)), ms.Stream[int])
    assert_type(flow.read_text("books/*.txt"), ms.Stream[str])


def rows(numbers: ms.Stream[int]) -> None:
    assert_type(numbers.map(str), ms.Stream[str])
    assert_type(numbers.flat_map(lambda i: [i / 2]), ms.Stream[float])
    assert_type(numbers.filter(lambda i: i > 0), ms.Stream[int])
    assert_type(numbers.filter_map(lambda i: str(i) if i else None), ms.Stream[str])
    assert_type(numbers.map(lambda i: [i]).flatten(), ms.Stream[int])
    assert_type(numbers.inspect(print), ms.Stream[int])
    assert_type(numbers.map_batches(lambda rows: [len(rows)]), ms.Stream[int])
    assert_type(numbers.unique(), ms.Stream[int])
    assert_type(numbers.shuffle(), ms.Stream[int])
    assert_type(numbers.max_parallelism(1), ms.Stream[int])
    assert_type(numbers.merge(numbers), ms.Stream[int])
    assert_type(numbers.split(2), tuple[ms.Stream[int], ...])
    assert_type(numbers.zip(numbers.map(str)), ms.Stream[tuple[int, str]])
    assert_type(numbers.sort_by(lambda i: -i).limit(3), ms.Stream[int])


def keys(words: ms.Stream[str]) -> None:
    keyed = words.key_by(len)
    assert_type(keyed, ms.KeyedStream[int, str])
    assert_type(keyed.map(len), ms.KeyedStream[int, int])
    assert_type(keyed.flat_map(list), ms.KeyedStream[int, str])
    assert_type(keyed.filter(bool), ms.KeyedStream[int, str])
    assert_type(keyed.key_by(str.lower), ms.KeyedStream[str, str])
    assert_type(keyed.drop_key(), ms.Stream[str])
    assert_type(keyed.unkey(), ms.Stream[tuple[int, str]])
    assert_type(
        keyed.map_with_state(0, lambda n, word: (n + 1, word)),
        ms.KeyedStream[int, str],
    )
    lengths = words.key_by(str.lower).map(len)
    assert_type(lengths.process(Running()), ms.KeyedStream[str, float])


def groups(words: ms.Stream[str]) -> None:
    groups = words.group_by(len)
    assert_type(groups, ms.GroupedStream[int, str])
    assert_type(groups.count(), ms.Stream[tuple[int, int]])
    assert_type(groups.reduce(lambda x, y: x + y), ms.Stream[tuple[int, str]])
    assert_type(groups.fold(0, lambda n, word: n + 1), ms.Stream[tuple[int, int]])
    assert_type(groups.max(), ms.Stream[tuple[int, str]])
    assert_type(groups.unique(), ms.Stream[tuple[int, set[str]]])
    assert_type(groups.mean(), ms.Stream[tuple[int, Any]])
    assert_type(groups.scan(max), ms.Stream[tuple[int, Any]])


def aggregates_of_keys(words: ms.Stream[str]) -> None:
    keyed = words.key_by(len)
    assert_type(keyed.count(), ms.KeyedStream[int, int])
    assert_type(keyed.reduce(lambda x, y: x + y), ms.KeyedStream[int, str])
    assert_type(keyed.fold(0, lambda n, word: n + 1), ms.KeyedStream[int, int])
    assert_type(keyed.unique(), ms.KeyedStream[int, set[str]])
    assert_type(keyed.scan(max), ms.KeyedStream[int, Any])
    assert_type(keyed.count().unkey(), ms.Stream[tuple[int, int]])


def joined(words: ms.Stream[str], numbers: ms.Stream[int]) -> None:
    left, right = words.key_by(len), numbers.key_by(abs)
    assert_type(left.join(right), ms.KeyedStream[int, tuple[str, int]])
    assert_type(left.join(right, how="anti"), ms.KeyedStream[int, str])
    assert_type(
        left.interval_join(right, 0, 9, how="left"),
        ms.KeyedStream[int, tuple[str, int | None]],
    )
    assert_type(
        left.window_join(right, ms.windows.tumbling(9), how="full"),
        ms.KeyedStream[int, tuple[str | None, int | None]],
    )
    assert_type(left.asof_join(right), ms.KeyedStream[int, tuple[str, int]])
    assert_type(left.join_table(right, how="semi"), ms.KeyedStream[int, str])
    assert_type(words.join_broadcast(right, len), ms.Stream[tuple[str, int]])


def in_windows(words: ms.Stream[str]) -> None:
    threes = ms.windows.count(3)
    whole = words.window(threes)
    assert_type(whole.count(), ms.Stream[int])
    assert_type(whole.max(), ms.Stream[str])
    assert_type(whole.reduce(lambda x, y: x + y), ms.Stream[str])
    assert_type(whole.unique(), ms.Stream[set[str]])
    assert_type(whole.collect(), ms.Stream[list[str]])
    assert_type(whole.mean(), ms.Stream[Any])
    assert_type(whole.with_window().count(), ms.Stream[Any])
    assert_type(whole.count().late(), ms.Stream[ms.LateRow])
    grouped, keyed = words.group_by(len), words.key_by(len)
    assert_type(grouped.window(threes).first(), ms.Stream[tuple[int, str]])
    assert_type(grouped.window(threes).count(), ms.Stream[tuple[int, int]])
    assert_type(grouped.window(threes).collect(), ms.Stream[tuple[int, list[str]]])
    pairs = grouped.sliding_count_reduce(lambda x, y: x + y, 3, 1)
    assert_type(pairs, ms.Stream[tuple[int, str]])
    assert_type(keyed.window(threes).last(), ms.KeyedStream[int, str])
    assert_type(keyed.window(threes).count(), ms.KeyedStream[int, int])
    assert_type(keyed.window(threes).unique(), ms.KeyedStream[int, set[str]])
    assert_type(keyed.window(threes).map_window(max), ms.KeyedStream[int, Any])
    longest = keyed.sliding_count_reduce(lambda x, y: x + y, 3, 1)
    assert_type(longest, ms.KeyedStream[int, str])


def results(numbers: ms.Stream[int], flow: ms.Flow) -> None:
    assert_type(numbers.collect().result(), list[int])
    assert_type(numbers.collect(set).result(), set[int])
    assert_type(numbers.collect(Counter).result(), Counter[int])
    assert_type(numbers.key_by(str).collect().result(), list[tuple[str, int]])
    assert_type(numbers.count().result(), int)
    assert_type(numbers.max().result(), int | None)
    assert_type(numbers.reduce(lambda x, y: x + y).result(), int | None)
    assert_type(numbers.fold("", lambda text, i: text).result(), str)
    assert_type(flow.run(on="local"), ms.Job)
    assert_type(flow.start(on="processes", workers=2), ms.Job)
