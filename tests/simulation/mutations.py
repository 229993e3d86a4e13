"""Mistakes that somebody could make in snapshots and recovery, by name.

Each patches the engine; `test_recovery_mutations` runs seeds until one shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import millstream.simulation.options

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from tests.simulation.flows import Case

    from millstream.simulation.options import FaultKind

    Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch, the flow that shows it, what goes wrong, and the first seed to try."""

    patch: Callable[[Patch], None]
    make: Callable[[], Case]
    text: str
    seed: int


MUTANTS: dict[str, Mutant] = {}


def mutant(
    make: Callable[[], Case], text: str, *, seed: int = 0
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Take up a mutant under the name of its function."""

    def add(patch: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS[patch.__name__] = Mutant(patch, make, text, seed)
        return patch

    return add


def wrapped(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by one that gets the original as its first argument."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *a, **k: change(original, *a, **k))


def often(patch: Patch, kind: FaultKind, *, is_driver: bool) -> None:
    """Let a rare disaster happen in most seeds."""
    shares = dict(millstream.simulation.options._DISASTER_SHARES)
    shares[kind, is_driver] = 0.7
    patch.setattr(millstream.simulation.options, "_DISASTER_SHARES", shares)
