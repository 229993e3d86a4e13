"""The engine without one of its fixes: what the fuzzer must find again.

Each patches the engine back to a mistake that was in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import millstream.launch.job
from millstream.columns.expressions import Split
from millstream.plan.ended import Remains
from millstream.protocol.rounds import HeadPhase
from millstream.runtime import head, restoring
from millstream.runtime.head import HeadIntake
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    Patch = pytest.MonkeyPatch

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch and the scenarios of the corpus that show it."""

    patch: Callable[[Patch], None]
    shown_by: tuple[str, ...]


MUTANTS: dict[str, Mutant] = {}


def mutant(*shown_by: str) -> Callable[[Callable[[Patch], None]], None]:
    """Take up a patch under the name of its function."""

    def add(patch: Callable[[Patch], None]) -> None:
        MUTANTS[patch.__name__] = Mutant(patch, shown_by)

    return add


@mutant("iterate with fewer workers, next", "iterate with fewer workers, shuffled")
def one_head_that_waited_speaks_for_all(patch: Patch) -> None:
    """Former heads of an iteration, some of which still collect, become one that waits."""

    def kept(self: HeadIntake) -> tuple[bool, int, int]:
        own = self._head
        return own.phase is HeadPhase.WAITING, own.decided, own.begun

    def put(self: HeadIntake, values: list[tuple[bool, int, int]]) -> None:
        own = self._head
        own.decided = max(decided for _, decided, _ in values)
        own.begun = max(begun for _, _, begun in values)
        self._held.resume(own.decided, own.begun)
        if any(waiting for waiting, _, _ in values):
            own.phase = HeadPhase.WAITING
            self._tell_ready(None)

    def unshared(kept: Any, put: Any, **_: Any) -> TaskState:
        return TaskState(kept, put)

    patch.setattr(HeadIntake, "_kept", kept)
    patch.setattr(HeadIntake, "_put", put)
    patch.setattr(head, "TaskState", unshared)


@mutant(
    "limit with more workers",
    "limit beside one more map",
    "cycle that is complete",
)
def what_has_ended_begins_anew(patch: Patch) -> None:
    """Which operators had ended is forgotten in another plan or width."""
    nothing = Remains(frozenset(), frozenset(), {})
    patch.setattr(restoring, "remains_of", lambda stages, ended: nothing)
    patch.setattr(millstream.launch.job, "is_complete", lambda manifest, stages: False)


@mutant(
    "sum to count",
    "tumbling of another size",
    "join of another kind",
)
def old_state_goes_to_whoever_has_its_name(patch: Patch) -> None:
    """Nobody compares what an operator keeps with what it kept."""
    patch.setattr(millstream.launch.job, "check_fit", lambda *_, **__: [])


@mutant("agg in another order")
def parts_are_known_by_their_place(patch: Patch) -> None:
    """Parts of aggregates are numbered, so that another order is another meaning."""

    def named(self: Split, *_: Any) -> str:
        self._names.add(name := f"{self.prefix}{len(self._names)}")
        return name

    patch.setattr(Split, "named", named)
