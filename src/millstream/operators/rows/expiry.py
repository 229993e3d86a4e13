"""State with a time to live: when each value expires is kept beside it.

Under the name ``("ttl", name)`` stands when the value under `name` expires, or for each
key of a map when that entry does.  Nothing here knows clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.operators.rows.timers import KeyState

__all__ = ["expire", "expire_entries", "expiry_name", "next_expiry"]

_TTL = "ttl"


def expiry_name(name: str) -> tuple[str, str]:
    """Return the name under which the expiry of what `name` stands for is kept.

    Examples
    --------
    >>> state = {"seen": True, expiry_name("seen"): 1_000}
    >>> expire(state, 999)
    1000
    >>> expire(state, 1_000), state
    (None, {})
    """
    return _TTL, name


def expire(state: KeyState, now_ms: int) -> int | None:
    """Remove what has expired; return when the next value does, if any will."""
    for name in [n for n in state if type(n) is tuple and n[0] == _TTL]:
        kept = state[name]
        if isinstance(kept, dict):
            expire_entries(state, name[1], now_ms)
        elif kept <= now_ms:
            del state[name]
            state.pop(name[1], None)
    return next_expiry(state)


def next_expiry(state: KeyState) -> int | None:
    """Return when the next value expires, if any will."""
    kept = [state[n] for n in state if type(n) is tuple and n[0] == _TTL]
    times = (min(each.values()) if isinstance(each, dict) else each for each in kept)
    return min(times, default=None)


def expire_entries(state: KeyState, name: str, now_ms: int) -> None:
    """Remove the entries of the map `name` that have expired."""
    expiries, values = state.get(expiry_name(name), {}), state.get(name, {})
    for key in [key for key, time in expiries.items() if time <= now_ms]:
        del expiries[key]
        values.pop(key, None)
    if not expiries:
        state.pop(expiry_name(name), None)
    if not values:
        state.pop(name, None)
