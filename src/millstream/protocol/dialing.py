"""When a connection that could not be made is tried again.

A listener that is flooded may turn a member away, and a path may be clogged for a while;
so one failed dial says nothing.  This module decides when to dial next and when to give
up.  It knows no sockets, and time comes from outside.

Theory of operation
-------------------
The pause doubles with every attempt, up to a limit, and a share of it depends on who dials
whom how often, so that members that were turned away together do not come back together.
Where nobody listens at all there is nothing to wait for: a listener is there before
anybody is told its address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.ids import PeerId

__all__ = ["Dialing"]

_FIRST_PAUSE_NS = 20_000_000
_PAUSE_NS_MAX = 1_000_000_000
_SPREAD = 1 << 32


@dataclass(slots=True)
class _Dial:
    address: tuple[str, int]
    deadline_ns: int
    attempts: int = 1
    #: When to dial again; None while an attempt is under way.
    again_ns: int | None = None


class Dialing:
    """The peers that one peer is trying to reach.

    Examples
    --------
    >>> dialing = Dialing(own_id=1)
    >>> dialing.begin(2, ("10.0.0.2", 7000), deadline_ns=10**9)
    >>> dialing.fail(2, now_ns=0)
    True
    >>> dialing.due(now_ns=10**8)
    [(2, ('10.0.0.2', 7000))]
    >>> dialing.fail(2, now_ns=10**9)
    False
    """

    def __init__(self, own_id: PeerId) -> None:
        assert own_id > 0, "the coordinator is dialed, and dials nobody"
        self._own_id = own_id
        self._dials: dict[PeerId, _Dial] = {}

    def validate(self) -> None:
        """Assert that every dial can still succeed; called by every test."""
        for peer, dial in self._dials.items():
            assert dial.attempts > 0, f"peer {peer} is dialed, and never was"
            assert dial.again_ns is None or dial.again_ns <= dial.deadline_ns, (
                f"peer {peer} is dialed at {dial.again_ns}, behind {dial.deadline_ns}"
            )

    def __contains__(self, peer: PeerId) -> bool:
        """Whether a peer is being dialed."""
        return peer in self._dials

    @property
    def next_ns(self) -> int | None:
        """When the next attempt is due."""
        pauses = (dial.again_ns for dial in self._dials.values())
        return min((at for at in pauses if at is not None), default=None)

    def begin(self, peer: PeerId, address: tuple[str, int], deadline_ns: int) -> None:
        """Take note of a first attempt."""
        assert peer not in self._dials, f"peer {peer} is being dialed"
        assert peer != self._own_id, f"peer {peer} dials itself"
        self._dials[peer] = _Dial(address, deadline_ns)

    def extend(self, peer: PeerId, deadline_ns: int) -> None:
        """Give a peer that is being dialed more time."""
        assert peer in self._dials, f"peer {peer} is not being dialed"
        dial = self._dials[peer]
        assert deadline_ns >= dial.deadline_ns, (
            f"peer {peer} has until {dial.deadline_ns}, {deadline_ns} is less"
        )
        dial.deadline_ns = deadline_ns

    def succeed(self, peer: PeerId) -> None:
        """Take note that a peer is connected, whoever dialed."""
        self._dials.pop(peer, None)

    def fail(self, peer: PeerId, now_ns: int, *, is_absent: bool = False) -> bool:
        """Take note that an attempt failed; return whether there will be another one.

        Nothing is tried again where nobody listens (`is_absent`), or when the pause
        would end behind the deadline.
        """
        assert peer in self._dials, f"peer {peer} is not being dialed"
        dial = self._dials[peer]
        again_ns = now_ns + self._pause_ns(peer, dial.attempts)
        if is_absent or again_ns > dial.deadline_ns:
            del self._dials[peer]
            return False
        dial.again_ns = again_ns
        return True

    def due(self, now_ns: int) -> list[tuple[PeerId, tuple[str, int]]]:
        """Return whom to dial now; each counts as an attempt."""
        found = []
        for peer, dial in self._dials.items():
            if dial.again_ns is not None and dial.again_ns <= now_ns:
                assert dial.again_ns <= dial.deadline_ns, f"{peer} was given up: {dial}"
                dial.again_ns = None
                dial.attempts += 1
                found.append((peer, dial.address))
        return found

    def keep(self, peers: Iterable[PeerId]) -> list[PeerId]:
        """Forget all others; return those of them with an attempt under way."""
        kept = set(peers)
        dropped = {p: self._dials.pop(p) for p in list(self._dials) if p not in kept}
        assert self._dials.keys() <= kept, f"{self._dials.keys()} are not {kept}"
        return [peer for peer, dial in dropped.items() if dial.again_ns is None]

    def _pause_ns(self, peer: PeerId, attempts: int) -> int:
        assert attempts > 0, f"peer {peer} was never dialed, and failed"
        pause_ns = min(_FIRST_PAUSE_NS << min(attempts - 1, 16), _PAUSE_NS_MAX)
        chance = crc32(b"%d %d %d" % (self._own_id, peer, attempts)) / _SPREAD
        spread_ns = int(pause_ns * (0.5 + chance / 2))
        assert 0 < spread_ns <= _PAUSE_NS_MAX, f"{peer} is dialed in {spread_ns} ns"
        return spread_ns
