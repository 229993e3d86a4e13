"""A program and what happens to it: stopped, changed, resumed at another width, again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.fuzz.programs import Program

__all__ = ["Beside", "Launcher", "Leg", "Scenario"]

Launcher = Literal["local", "simulator", "processes"]
Beside = Literal["", "apart", "same state", "same output"]


@dataclass(frozen=True, slots=True)
class Leg:
    """One run of a program; all legs have one state directory.

    Attributes
    ----------
    stop
        After how many epochs the run is stopped; 0 if it may come to its end.
    tick_ns
        Time that passes with every look at the clock, on ``local``.
    batch_rows
        Rows that a source gives at a time.
    beside
        What else is started while it runs.
    may_refuse
        Whether what changed since the leg before may be refused with `SnapshotError`.
    drops
        Whether it is started with `drop_state`.
    free
        Sinks that are new and so get only a part of the rows.
    """

    program: Program
    workers: int = 1
    stop: int = 0
    tick_ns: int = 20_000
    batch_rows: int = 2
    beside: Beside = ""
    may_refuse: bool = False
    drops: bool = False
    free: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Legs one after the other; the seed is for the simulator."""

    legs: tuple[Leg, ...]
    launcher: Launcher = "local"
    seed: int = 0
