"""What a function changes of what it captured is found without calling it."""

from __future__ import annotations

import functools
import io
import sys
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.api.captures import changed_by, check_sendable

if TYPE_CHECKING:
    from collections.abc import Callable

found: list[Any] = []
seen: set[Any] = set()
counts: dict[Any, int] = {}
tally = Counter[Any]()
queue = deque[Any]()
table = {"a": 1}
total = 0


def sets_an_item(row: Any) -> None:
    counts[table[row] + 1] = found[0]


def adds_to_an_item(row: Any) -> None:
    tally[row] += 1


def deletes_an_item(row: Any) -> None:
    del counts[row]


def appends_inside(row: Any) -> None:
    def inner() -> None:
        queue.append(row)

    inner()


def appends_in_a_comprehension(row: Any) -> None:
    [found.append(each) for each in row]  # type: ignore[func-returns-value]  # so be it


def counts_in_a_global(row: Any) -> None:
    global total  # noqa: PLW0603 - the mistake
    total += row


def _closures() -> list[Callable[[Any], None]]:
    local, number = [0], 0

    def appends(row: Any) -> None:
        local.append(row)

    def counts_up(row: Any) -> None:
        nonlocal number
        number += row

    return [appends, counts_up]


@pytest.mark.parametrize(
    ("function", "changed"),
    [
        (found.append, "a list"),
        (seen.add, "a set"),
        (counts.__setitem__, "a dict"),
        (functools.partial(list.append, found), "a list"),
        (functools.partial(sets_an_item), "'counts', a dict"),
        (sets_an_item, "'counts', a dict"),
        (adds_to_an_item, "'tally', a Counter"),
        (deletes_an_item, "'counts', a dict"),
        (appends_inside, "'queue', a deque"),
        (appends_in_a_comprehension, "'found', a list"),
        (counts_in_a_global, "'total'"),
        (_closures()[0], "'local', a list"),
        (_closures()[1], "'number'"),
        (lambda row: counts.setdefault(row, 1), "'counts', a dict"),
    ],
)
def test_what_a_function_changes_is_named(
    function: Callable[[Any], Any], changed: str
) -> None:
    """A sink that does so warns, and says what to use."""
    assert changed_by(function) == changed
    rows = ms.Flow("changing").from_iterable([1])
    with pytest.warns(
        ms.LostChangesWarning, match=f"changes {changed}, .* use collect"
    ):
        rows.for_each(function)


def reads_only(row: Any) -> Any:
    return (table[row], table.get(row), len(found), sorted(seen))


def changes_its_own(row: Any) -> None:
    own = [row]
    own.append(table["a"])
    own[0] = found[0]
    by_name = {}
    by_name[table["a"]] = own
    by_name[row] += own


@pytest.mark.parametrize(
    "function",
    [
        print,
        table.get,
        reads_only,
        changes_its_own,
        lambda row: table[row],
        len,
        sys.stdout.write,
    ],
)
def test_reading_what_was_captured_is_no_mistake(function: Any) -> None:
    """A table to look things up in is what capturing is for."""
    assert changed_by(function) == ""


def test_what_can_be_sent_is_sent() -> None:
    """Standard output is known everywhere, and text in memory is plain data."""
    check_sendable(lambda row: sys.stdout.write(f"{row}"))
    text = io.StringIO("x")
    check_sendable(lambda row: text.getvalue() + row)
