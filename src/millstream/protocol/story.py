"""What the cores of a job decided, in words and in order.

Plain data with the time that events brought along.  Who shows it, in a log, an error or
a simulation, is not known here.

Every decision is kept until `entries_max` newer ones have been made.  Warnings are only
pushed out by warnings: a job that has taken a thousand snapshots since it lost a worker
still tells of that worker.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

__all__ = ["Severity", "Story", "StoryEntry"]

_TEXT_MAX = 300


class Severity(IntEnum):
    """How much a decision matters; the numbers are those of `logging`."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class StoryEntry:
    """One decision: when it was made, by which core, and what it was."""

    number: int
    at_ns: int
    area: Literal["job", "snapshots"]
    severity: Severity
    text: str

    def line(self, began_ns: int = 0) -> str:
        """Return time and words.

        Examples
        --------
        >>> opened = StoryEntry(
        ...     1, 1_500_000_000, "snapshots", Severity.INFO, "epoch 1 opened"
        ... )
        >>> opened.line()
        '     1.500 s  epoch 1 opened'
        """
        return f"{(self.at_ns - began_ns) / 1e9:10.3f} s  {self.text}"


class Story:
    """The last decisions of a job, those of both cores in one order.

    Parameters
    ----------
    began_ns
        The time that counts as 0.
    """

    def __init__(self, began_ns: int = 0, entries_max: int = 300) -> None:
        assert entries_max > 0, f"a story of {entries_max} decisions tells nothing"
        self.began_ns = began_ns
        self._count = 0
        self._routine: deque[StoryEntry] = deque(maxlen=entries_max)
        self._grave: deque[StoryEntry] = deque(maxlen=entries_max)
        self._untold: list[StoryEntry] = []

    def add(
        self,
        at_ns: int,
        area: Literal["job", "snapshots"],
        text: str,
        severity: Severity = Severity.INFO,
    ) -> None:
        """Keep a decision; of a long text only the beginning of its first line."""
        assert text, f"the {area} decided something without a word"
        self._count += 1
        entry = StoryEntry(self._count, at_ns, area, severity, _brief(text))
        is_grave = severity >= Severity.WARNING
        (self._grave if is_grave else self._routine).append(entry)
        self._untold.append(entry)

    def validate(self) -> None:
        """Assert that the order of decisions is kept; called by every test."""
        for kept in (self._routine, self._grave, self._untold):
            numbers = [entry.number for entry in kept]
            assert sorted(set(numbers)) == numbers, (
                f"decisions {numbers} are in disorder"
            )
            assert not numbers or numbers[-1] <= self._count, f"{numbers} were not made"
        routine = [e for e in self._routine if e.severity >= Severity.WARNING]
        assert not routine, f"{routine} can be pushed out by what is not grave"

    def untold(self) -> list[StoryEntry]:
        """Return what was added since the last call; for whoever logs it."""
        untold, self._untold = self._untold, []
        return untold

    def entries(self) -> list[StoryEntry]:
        """Return what is kept, oldest first."""
        kept = sorted([*self._routine, *self._grave], key=lambda d: d.number)
        assert len(kept) <= self._count, f"{len(kept)} of {self._count} are kept"
        return kept

    def lines(self) -> tuple[str, ...]:
        """Return what is kept in words, with seconds since the beginning."""
        return tuple(each.line(self.began_ns) for each in self.entries())


def _brief(text: str) -> str:
    first = text.partition("\n")[0]
    brief = first if len(first) <= _TEXT_MAX else f"{first[: _TEXT_MAX - 1]}…"
    assert len(brief) <= _TEXT_MAX, f"{len(brief)} characters are not brief"
    return brief
