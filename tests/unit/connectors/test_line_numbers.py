"""LineNumbers: counts on demand, in bounded turns, from what is known."""

from __future__ import annotations

from itertools import accumulate

import pytest

from millstream.connectors.line_numbers import LineNumbers

GIB = 1024**3
MIB = 1024**2


class Content:
    """A file of equal lines that remembers how much of it was read."""

    def __init__(self, line: bytes = b"x" * 63 + b"\n") -> None:
        self.block = line * (MIB // len(line))
        self.bytes_read = 0

    def read(self, position: int, count: int) -> bytes:
        self.bytes_read += count
        begin = position % MIB
        return (self.block + self.block)[begin : begin + count]


def turns_to(lines: LineNumbers, at: int) -> int:
    """Return how many turns it takes to know the number of a line."""
    for turn in range(1, 1000):
        if lines.is_near(at):
            return turn
    raise AssertionError


@pytest.mark.parametrize("at", [0, 64, 64 * 5000, 64 * 100_000])
def test_a_line_has_the_number_of_the_newlines_before_it_and_one(at: int) -> None:
    """The first line has the number 1."""
    lines = LineNumbers({}, Content().read)
    turns_to(lines, at)

    assert lines.number(at) == at // 64 + 1


def test_counting_far_takes_turns() -> None:
    """Other tasks of the worker get theirs in between."""
    content = Content()
    lines = LineNumbers({}, content.read)

    assert not lines.is_near(100 * MIB)
    assert content.bytes_read == 16 * MIB
    assert turns_to(lines, 100 * MIB) == 6
    assert lines.number(100 * MIB) == 100 * MIB // 64 + 1


def test_what_one_reader_counted_another_does_not_count_again() -> None:
    """Bad rows in every split of a file cost one pass, not one each."""
    known: dict[int, int] = {}
    content = Content()
    for at in accumulate([MIB] * 20):
        lines = LineNumbers(known, content.read)
        turns_to(lines, at)
        assert lines.number(at) == at // 64 + 1

    assert content.bytes_read == 20 * MIB


def test_far_into_a_file_no_number_is_given() -> None:
    """The first byte must do, rather than hours of counting."""
    content = Content()
    lines = LineNumbers({}, content.read)

    assert lines.is_near(5 * GIB)
    assert lines.number(5 * GIB) is None
    assert content.bytes_read == 0
