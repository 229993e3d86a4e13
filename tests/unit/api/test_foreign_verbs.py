"""Verbs that users of Spark type by habit are answered with those of Millstream."""

from __future__ import annotations

from typing import Any

import pytest

import millstream as ms
from millstream.api.foreign_verbs import _ROWS


def streams() -> list[Any]:
    rows = ms.Flow("habits").from_iterable([1])
    return [rows, rows.key_by(abs), rows.group_by(abs)]


@pytest.mark.parametrize("verb", sorted(_ROWS))
def test_verb_of_spark_names_the_one_here(verb: str) -> None:
    """On every kind of stream, with the user's line."""
    for stream in streams():
        with pytest.raises(
            ms.UsageError, match=f"`{verb}` at .* is no verb of a .*; use"
        ):
            getattr(stream, verb)


@pytest.mark.parametrize("advice", sorted(set(_ROWS.values())))
def test_advice_begins_with_a_verb_that_exists(advice: str) -> None:
    """Nothing is worse than a hint that leads nowhere."""
    assert hasattr(ms.Stream, advice[1:].partition("(")[0])


def test_unknown_verb_is_only_unknown() -> None:
    """No guess is better than a wild one."""
    for stream in streams():
        with pytest.raises(AttributeError, match=r"has no verb 'frobnicate'$"):
            stream.frobnicate  # noqa: B018 - what is tested
