"""Placement: every index has a living host, evenly, and moves only if it must."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.ids import PeerId
from millstream.protocol.placement import place

WORKERS = st.lists(st.integers(1, 9).map(PeerId), min_size=1, max_size=6, unique=True)


def test_first_placement_is_one_index_per_worker() -> None:
    """A job that has lost nobody hosts one task of every stage on each worker."""
    assert place((), [PeerId(1), PeerId(2), PeerId(3)], 3) == (1, 2, 3)


def test_indexes_of_a_lost_worker_are_spread_over_the_others() -> None:
    """Nobody takes over all of them."""
    before = place((), [PeerId(i) for i in range(1, 5)], 8)
    rest = [PeerId(i) for i in range(1, 4)]

    after = place(before, rest, 8)

    assert sorted(Counter(after).values()) == [2, 3, 3]


def test_replacement_takes_over_a_share() -> None:
    """From those who have more than theirs."""
    after = place(
        (PeerId(1), PeerId(1), PeerId(3)), [PeerId(1), PeerId(3), PeerId(4)], 3
    )

    assert after == (4, 1, 3)


def test_more_workers_than_indexes_leave_some_without() -> None:
    """The spare ones host nothing."""
    assert place((PeerId(1),), [PeerId(1), PeerId(2)], 1) == (1,)


@given(WORKERS, WORKERS, st.integers(1, 12))
def test_placement_is_even_and_moves_as_little_as_it_can(
    before: list[PeerId], after: list[PeerId], task_count: int
) -> None:
    """Every index is on a living worker; only lost and surplus ones move."""
    old = place((), before, task_count)

    new = place(old, after, task_count)

    assert len(new) == task_count
    assert set(new) <= set(after)
    loads = Counter(dict.fromkeys(after, 0))
    loads.update(new)
    assert max(loads.values()) - min(loads.values()) <= 1
    moved = sum(a != b for a, b in zip(old, new, strict=True))
    assert moved == fewest_moves(Counter(old), after, task_count)


def fewest_moves(old: Counter[PeerId], after: list[PeerId], task_count: int) -> int:
    """Return how many indexes cannot stay: the fullest keep the larger shares."""
    share, larger = divmod(task_count, len(after))
    loads = sorted((old[worker] for worker in after), reverse=True)
    caps = [share + (number < larger) for number in range(len(after))]
    return task_count - sum(map(min, loads, caps))
