"""Who gives way when more strangers knock than may wait at the door.

Connections that have not proved yet that they belong to the job are counted by the
address they come from.  This module decides which of them is dropped for a newcomer.  It
knows neither sockets nor deadlines, and chance comes from outside.

Theory of operation
-------------------
A member says at once what only members know, the name of the job, and is *greeted* then.
Somebody who holds places without knowing it displaces only those who have not said it
either.  An address that has used up its share displaces its own connections, and
otherwise the address that has most of them gives way, so that one host cannot displace
another.  Within an address the victim is drawn: the oldest would be the member that is
just about to prove itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

__all__ = ["HalfOpen"]

K = TypeVar("K", bound="Hashable")


class HalfOpen(Generic[K]):
    """The connections that have proved nothing yet.

    Parameters
    ----------
    total_max
        So many at most.
    address_max
        So many at most of one address.
    choose
        Draws one of several.

    Examples
    --------
    >>> waiting = HalfOpen(2, 2, choose=lambda several: several[0])
    >>> waiting.admit("a", "10.0.0.1"), waiting.admit("b", "10.0.0.1")
    (None, None)
    >>> waiting.greet("a")
    >>> waiting.admit("c", "10.0.0.2")
    'b'
    """

    def __init__(
        self, total_max: int, address_max: int, *, choose: Callable[[Sequence[K]], K]
    ) -> None:
        assert min(total_max, address_max) > 0, f"{total_max}, {address_max}: no room"
        self._total_max = total_max
        self._address_max = address_max
        self._choose = choose
        self._address_of: dict[K, str] = {}
        self._silent: dict[str, dict[K, None]] = {}
        self._greeted: dict[str, dict[K, None]] = {}

    def validate(self) -> None:
        """Assert that limits hold and everybody is in one group; called by every test."""
        assert len(self) <= self._total_max, f"{len(self)} of {self._total_max} wait"
        found: dict[K, str] = {}
        for group in (self._silent, self._greeted):
            for address, keys in group.items():
                assert keys, f"nobody of {address} is left, and it is kept"
                twice = found.keys() & keys.keys()
                assert not twice, f"{twice} were greeted and were not"
                found |= dict.fromkeys(keys, address)
        assert found == self._address_of, f"{found} is not {self._address_of}"
        for address in set(found.values()):
            count = self._count(address)
            assert count <= self._address_max, f"{count} of {address} wait"

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._address_of)

    def admit(self, key: K, address: str) -> K | None:
        """Take a newcomer in; return the one that must be dropped for it."""
        assert key not in self._address_of, f"{key!r} was admitted before"
        victim = None
        if self._count(address) >= self._address_max:
            victim = self._victim(address)
        elif len(self) >= self._total_max:
            victim = self.most_crowded()
        if victim is not None:
            self.remove(victim)
        self._address_of[key] = address
        self._silent.setdefault(address, {})[key] = None
        assert len(self) <= self._total_max, f"{len(self)} wait, {victim!r} is dropped"
        assert self._count(address) <= self._address_max, f"too many of {address}"
        return victim

    def most_crowded(self) -> K | None:
        """Return the one that must give way where there is no room for any more."""
        if not self._address_of:
            return None
        addresses = dict.fromkeys(self._address_of.values())
        victim = self._victim(max(addresses, key=self._count))
        assert victim in self._address_of, f"{victim!r} is not there to give way"
        return victim

    def greet(self, key: K) -> None:
        """Take note that a connection knows the name of the job."""
        address = self._address_of.get(key)
        if address is not None and key in self._silent.get(address, ()):
            self._discard(self._silent, address, key)
            greeted = self._greeted.setdefault(address, {})
            assert key not in greeted, f"{key!r} was silent, and greeted before"
            greeted[key] = None

    def remove(self, key: K) -> None:
        """Forget a connection; one that is not there is fine."""
        address = self._address_of.pop(key, None)
        if address is not None:
            is_silent = key in self._silent.get(address, ())
            is_greeted = key in self._greeted.get(address, ())
            assert is_silent != is_greeted, f"{key!r} is in both groups or none"
            self._discard(self._silent, address, key)
            self._discard(self._greeted, address, key)

    def _count(self, address: str) -> int:
        return len(self._silent.get(address, ())) + len(self._greeted.get(address, ()))

    def _victim(self, address: str) -> K:
        several = list(self._silent.get(address) or self._greeted.get(address) or ())
        assert several, f"nobody of {address} is there to give way"
        victim = self._choose(several)
        assert victim in several, f"{victim!r} is none of those to choose from"
        return victim

    def _discard(self, groups: dict[str, dict[K, None]], address: str, key: K) -> None:
        group = groups.get(address)
        if group is not None:
            group.pop(key, None)
            if not group:
                del groups[address]
