"""Checks at the moment a verb is called, where a golden program would be too much."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

import millstream as ms
from millstream.api.building import checked_function, located, user_location
from millstream.errors import UsageError


class Guarded:
    """A callable with something inside that cannot travel."""

    def __init__(self) -> None:
        self.guard = threading.Lock()

    def __call__(self, row: Any) -> Any:
        return row

    def method(self, row: Any) -> Any:
        return row


def with_keyword(row: Any, *, guard: Any) -> Any:
    return row


GUARD = threading.Lock()


@pytest.mark.parametrize(
    ("function", "culprit"),
    [
        (Guarded(), "'guard' (a lock)"),
        (Guarded().method, "'self' (a Guarded with a lock in it)"),
        (partial(with_keyword, guard=GUARD), "'guard' (a lock)"),
        (partial(with_keyword, GUARD), "'argument 0' (a lock)"),
        (lambda row, *, guard=GUARD: row, "'guard' (a lock)"),
    ],
    ids=["callable", "method", "keyword of a partial", "argument", "keyword default"],
)
def test_what_cannot_travel_is_named(function: Any, culprit: str) -> None:
    """The user need not guess which of ten variables it is."""
    with pytest.raises(UsageError) as raised:
        checked_function("map", function)

    assert f"captures {culprit}, which cannot be sent" in str(raised.value)


def test_variable_without_a_value_is_not_the_culprit() -> None:
    """A function that is defined later may be captured already."""
    guard = threading.Lock()

    def function(row: Any) -> Any:
        return guard, later(row)

    with pytest.raises(UsageError, match="captures 'guard'"):
        checked_function("map", function)

    def later(row: Any) -> Any:
        return row


def test_location_is_the_line_of_the_caller() -> None:
    """Outside the package, however deep inside it the question is asked."""
    assert str(user_location()).startswith("test_building.py:")


def test_located_names_the_verb_and_leaves_other_errors_alone() -> None:
    """Only sentences for users are completed."""

    def fail(error: Exception) -> None:
        with located("read"):
            raise error

    with pytest.raises(UsageError, match=r"^`read` at test_building.py:\d+: no$"):
        fail(UsageError("no"))
    with pytest.raises(KeyError):
        fail(KeyError())


def test_what_runs_in_the_driver_need_not_travel() -> None:
    """`collect(into)` may use a connection that the driver has open."""
    guard = threading.Lock()

    def into(rows: list[int]) -> int:
        with guard:
            return len(rows)

    flow = ms.Flow("driver")
    rows = flow.from_iterable([1, 2]).collect(into)
    flow.run(on="local")

    assert rows.result() == 2


def test_unknown_verb_is_an_attribute_error() -> None:
    """As everywhere in Python, so that `hasattr` works."""
    flow = ms.Flow("verbs")
    stream = flow.from_iterable([1])

    for kind in (stream, stream.key_by(abs), stream.group_by(abs)):
        assert not hasattr(kind, "no_such_verb")


@pytest.mark.parametrize("verb", ["limit", "shuffle", "merge", "zip", "sort_by"])
def test_verb_of_plain_streams_is_explained_on_keyed_ones(verb: str) -> None:
    """The way out stands in the message."""
    keyed: Any = ms.Flow("keyed").from_iterable([1]).key_by(abs)

    with pytest.raises(UsageError, match=r"call .drop_key\(\) or .unkey\(\) first"):
        getattr(keyed, verb)


def test_streams_say_what_they_are() -> None:
    """In a debugger or a notebook."""
    flow = ms.Flow("repr")
    stream = flow.from_iterable([1])

    assert repr(stream).startswith("<Stream from 'from_iterable' at test_building.py:")
    assert repr(stream.key_by(abs)).startswith("<KeyedStream from 'key_by' at")
    assert repr(stream.group_by(abs)).startswith("<GroupedStream from 'group_by' at")
    assert repr(stream.count()) == "<result of 'count' of flow 'repr'>"
    assert repr(flow) == "<Flow 'repr' with 5 operators>"
