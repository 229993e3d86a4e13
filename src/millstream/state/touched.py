"""Which keys were touched in which epoch, so that a delta costs only those.

Nothing here knows what is kept under the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.protocol.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["TouchedKeys"]


class TouchedKeys:
    """A set of keys for every epoch that is not complete, and one for the present.

    Examples
    --------
    >>> touched = TouchedKeys()
    >>> touched.add("ab")
    >>> touched.cut(Epoch(1))
    >>> touched.add("c")
    >>> touched.cut(Epoch(2))
    >>> touched.since(Epoch(1))
    {'c'}
    """

    __slots__ = ("_by_epoch", "_complete", "_now")

    def __init__(self) -> None:
        self._now: set[Any] = set()
        self._by_epoch: dict[Epoch, set[Any]] = {}
        self._complete = Epoch(0)

    def add(self, keys: Iterable[Any]) -> None:
        """Note that the keys are being changed."""
        self._now.update(keys)

    def cut(self, epoch: Epoch) -> None:
        """End the present set: it belongs to `epoch`."""
        assert epoch > max(self._by_epoch, default=self._complete), (
            f"epoch {epoch} was cut after {list(self._by_epoch)}"
        )
        self._by_epoch[epoch], self._now = self._now, set()

    def since(self, epoch: Epoch) -> set[Any]:
        """Return what was touched after `epoch`, up to the last cut; never changed."""
        assert epoch >= self._complete, (
            f"a delta since epoch {epoch} was asked for, but the keys touched up to "
            f"{self._complete} are forgotten"
        )
        later = [keys for number, keys in self._by_epoch.items() if number > epoch]
        return later[0] if len(later) == 1 else set().union(*later)

    def complete(self, epoch: Epoch) -> None:
        """Forget the keys of an epoch that is stored, and of those before it."""
        self._complete = max(self._complete, epoch)
        for number in [n for n in self._by_epoch if n <= epoch]:
            del self._by_epoch[number]

    def forget(self) -> None:
        """Forget what was touched since the last cut: it is not there any more."""
        self._now.clear()
