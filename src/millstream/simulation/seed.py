"""Every random choice of a simulation, derived by name from one number.

Each subsystem draws from a stream of its own, so a fault more or less does not change
the delays of the network or the order of turns.
"""

from __future__ import annotations

from random import Random

__all__ = ["stream"]


def stream(seed: int, name: str) -> Random:
    """Return the random numbers of one subsystem.

    Examples
    --------
    >>> stream(42, "faults").random() == stream(42, "faults").random()
    True
    >>> stream(42, "faults").random() == stream(42, "delays").random()
    False
    """
    return Random(f"{seed}/{name}")  # noqa: S311 - repeatable on purpose
