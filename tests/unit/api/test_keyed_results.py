"""What follows `key_by` stays keyed; what ends a `group_by` is a stream of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = ["ab", "a", "b", "bb"]
LONGEST = ms.Aggregate("longest", len, lambda n, word: max(n, len(word)), max)
VERBS: dict[str, Callable[[Any], Any]] = {
    "count": lambda words: words.count(),
    "sum": lambda words: words.sum(),
    "min": lambda words: words.min(),
    "max": lambda words: words.max(),
    "first": lambda words: words.first(),
    "last": lambda words: words.last(),
    "unique": lambda words: words.unique(),
    "reduce": lambda words: words.reduce(lambda x, y: x + y),
    "fold": lambda words: words.fold("", lambda text, word: text + word),
    "aggregate": lambda words: words.aggregate(LONGEST),
    "scan": lambda words: words.scan(lambda x, y: x + y),
    "count window": lambda words: words.window(ms.windows.count(2)).count(),
    "window": lambda words: words.window(ms.windows.tumbling(10)).count(),
    "window shown": lambda words: (
        words.window(ms.windows.tumbling(10)).with_window().count()
    ),
    "map_window": lambda words: words.window(ms.windows.session(5)).map_window(
        lambda window, values: (window.start, len(values))
    ),
    "collected": lambda words: words.window(ms.windows.count(2)).collect(),
    "trigger": lambda words: words.window(ms.windows.global_window(Always())).collect(),
    "sliding_count_reduce": lambda words: words.sliding_count_reduce(min, 2, 1),
    "sliding_e_time_reduce": lambda words: words.sliding_e_time_reduce(min, 10, 5),
}


class Always(ms.windows.Trigger):
    """Says what is there after every row."""

    def on_row(
        self, value: Any, context: ms.windows.TriggerContext
    ) -> ms.windows.Action:
        del value, context
        return ms.windows.Action.FIRE

    def on_time(
        self, time: int, context: ms.windows.TriggerContext
    ) -> ms.windows.Action:
        raise NotImplementedError


def first_letter(word: str) -> str:
    return word[0]


def shown(result: Any) -> str:
    """Return a result as text, whatever the order of the sets in it."""
    if isinstance(result, tuple):
        return f"({', '.join(map(shown, result))})"
    return repr(sorted(result) if isinstance(result, set) else result)


def timed(flow: ms.Flow) -> ms.Stream[str]:
    return flow.from_iterable(WORDS).event_time(len, out_of_order=9)


@pytest.mark.parametrize("verb", VERBS)
def test_results_are_the_same_and_only_those_of_key_by_have_keys(verb: str) -> None:
    """A function behind `key_by` gets the result, one behind `group_by` the pair."""
    flow, apply = ms.Flow("both"), VERBS[verb]
    keyed = apply(timed(flow).key_by(first_letter))
    pairs = apply(timed(flow).group_by(first_letter))
    assert isinstance(keyed, ms.KeyedStream)
    assert isinstance(pairs, ms.Stream)
    results: list[ms.ResultHandle[Any]] = [
        keyed.collect(),
        keyed.map(shown).collect(),
        keyed.unkey().map(shown).collect(),
        pairs.collect(),
        pairs.map(shown).collect(),
    ]
    flow.run(on="local")
    given, values, rows, grouped, texts = (
        sorted(r.result(), key=repr) for r in results
    )

    assert {key for key, _ in given} == {"a", "b"}
    assert given == grouped
    assert values == sorted(((key, shown(value)) for key, value in given), key=repr)
    assert rows == texts == sorted((shown(pair) for pair in given), key=repr)


def test_times_of_windows_stay_behind_group_by() -> None:
    """Pairs have the time of their window, so that another window may follow."""
    flow = ms.Flow("twice")
    counts = timed(flow).group_by(first_letter).window(ms.windows.tumbling(2)).count()
    all_counts = counts.map(lambda pair: pair[1]).window(ms.windows.tumbling(4)).sum()
    rows, late = all_counts.collect(), counts.late().collect()
    flow.run(on="local", workers=2)

    assert rows.result() == [4]
    assert late.result() == []


def test_late_rows_of_groups_have_their_keys() -> None:
    """They are found behind what makes the pairs."""
    flow = ms.Flow("late")
    rows = flow.from_iterable([1, 25, 2]).event_time(lambda i: i)
    counts = rows.group_by(lambda i: i % 2).window(ms.windows.tumbling(10)).count()
    late, pairs = counts.late().collect(), counts.collect()
    flow.run(on="local")

    assert late.result() == [ms.LateRow(0, 2, 2)]
    assert sorted(pairs.result()) == [(1, 1), (1, 1)]


def test_aggregate_of_a_keyed_stream_need_not_move_again() -> None:
    """Results are where their keys are, and so are states and joins that follow."""
    flow = ms.Flow("once")
    words = flow.from_iterable(WORDS)
    counts = words.key_by(first_letter).count()
    states = counts.map_with_state(0, lambda state, count: (state, count + 1))
    rows = states.join(words.key_by(first_letter, name="other").sum()).collect()
    plan = flow.explain()
    flow.run(on="local", workers=3)

    assert plan.count("by fields") == 2
    assert "shuffle" not in plan.replace("local-or-shuffle", "")
    assert sorted(rows.result()) == [("a", (3, "aba")), ("b", (3, "bbb"))]


def test_verbs_that_take_keys_away_are_not_for_plain_streams() -> None:
    """What `group_by` has ended has none; the pairs are rows already."""
    pairs: Any = ms.Flow("plain").from_iterable(WORDS).group_by(len).count()
    with pytest.raises(
        ms.UsageError, match=r"got a Stream from `count` .* leave it out"
    ):
        pairs.unkey()
