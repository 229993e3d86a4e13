"""What time it is for a task that takes over from several former ones.

This module decides in which order they are taken over.  It does not know what they had.

Theory of operation
-------------------
After a change of width a task has keys of several former tasks, and these may have come to
different times.  Rows come to them by key, so at a cut all of them had heard the same
watermarks; but while inputs are idle it matters in which order those were heard, and tasks
that go by the clock look at it at different moments.

The task goes on from the *latest* time.  What the others had not emitted by then is due at
once, as if they had come as far.  It cannot go on from an earlier one: what was emitted
cannot be taken back, and of what was dropped a row would make a part once more.  Nothing
that is on time becomes late by it: a watermark is true for every task, whoever heard it
first, but for rows of an input that was declared idle; and by the clock no row has a time
that is over.

A task with an input of its own is another matter: whoever gives time, and a join of which
every task has the whole table.  There watermarks differ because the rows do, and those of
the slowest input may go on in any task.  It begins with the *earliest* time, which is true
for all; what it has emitted it does not keep.

Invariant: what was taken over is at the time of the task whenever more is taken over, so
every part of the state is looked at from the time of the task that it comes from.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from millstream.protocol.watermark import BEGINNING, END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["earliest_time", "latest_time", "take_over"]

P = TypeVar("P")

_time_of = itemgetter(0)


def take_over(
    former: Iterable[tuple[int, P]],
    catch_up: Callable[[int], None],
    take: Callable[[list[P]], None],
) -> None:
    """Take over what former tasks had, in the order of the times that they had reached.

    Parameters
    ----------
    former
        The time of each, and what it had.
    catch_up
        Brings what has been taken so far to a time.
    take
        Takes what several had that had come to that time.

    Examples
    --------
    >>> take_over([(7, "a"), (5, "b"), (7, "c")], print, print)
    5
    ['b']
    7
    ['a', 'c']
    """
    for time, group in groupby(sorted(former, key=_time_of), key=_time_of):
        assert BEGINNING <= time <= END_OF_TIME, f"a former task was at {time}"
        catch_up(time)
        take([part for _, part in group])


def latest_time(times: Iterable[int]) -> int:
    """Return the time from which a task goes on whose state says what it has emitted.

    Examples
    --------
    >>> latest_time([7, 5])
    7
    """
    latest = max(times, default=BEGINNING)
    assert BEGINNING <= latest <= END_OF_TIME, f"a former task was at {latest}"
    return latest


def earliest_time(times: Iterable[int]) -> int:
    """Return the time from which a task goes on that has an input of its own.

    Examples
    --------
    >>> earliest_time([7, 5])
    5
    """
    earliest = min(times, default=BEGINNING)
    assert BEGINNING <= earliest <= END_OF_TIME, f"a former task was at {earliest}"
    return earliest
