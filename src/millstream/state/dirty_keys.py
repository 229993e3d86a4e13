"""Which keys were touched in which epoch, so that a delta costs only those.

Nothing here knows what is kept under the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.values import Key

__all__ = ["DirtyKeys"]

_NEARLY_ALL = 0.9


class DirtyKeys:
    """A set of keys for every epoch that is not complete, and one for the present.

    Examples
    --------
    >>> touched = DirtyKeys()
    >>> touched.add("ab")
    >>> touched.cut(Epoch(1))
    >>> touched.add("c")
    >>> touched.cut(Epoch(2))
    >>> touched.since(Epoch(1))
    {'c'}
    """

    __slots__ = ("_by_epoch", "_complete", "_now")

    def __init__(self) -> None:
        #: None stands for all keys there are.
        self._now: set[Key] | None = set()
        self._by_epoch: dict[Epoch, set[Key] | None] = {}
        self._complete = Epoch(0)

    def add(self, keys: Iterable[Key]) -> None:
        """Note that the keys are being changed."""
        if self._now is not None:
            self._now.update(keys)

    def saturate(self, key_count: int) -> None:
        """Stop counting until the next cut if nearly all keys have been touched.

        What is stored then is a little more, and the rows of a hot table cost nothing
        here any more.  Only for a table of which no key is ever deleted.
        """
        if self._now is not None and len(self._now) >= _NEARLY_ALL * key_count:
            self._now = None

    def cut(self, epoch: Epoch) -> None:
        """End the present set: it belongs to `epoch`."""
        assert epoch > max(self._by_epoch, default=self._complete), (
            f"epoch {epoch} was cut after {list(self._by_epoch)}"
        )
        self._by_epoch[epoch], self._now = self._now, set()

    def since(self, epoch: Epoch) -> set[Key] | None:
        """Return what was touched after `epoch`, up to the last cut; None if all keys.

        Epochs between the two were abandoned: their keys belong to the last cut from now
        on, so that a disk that stays full costs one set, however long that takes.  Nobody
        changes the set afterwards.
        """
        assert epoch >= self._complete, (
            f"a delta since epoch {epoch} was asked for, but the keys touched up to "
            f"{self._complete} are forgotten"
        )
        later = [number for number in self._by_epoch if number > epoch]
        if len(later) > 1:
            found = [self._by_epoch.pop(number) for number in later]
            sets = [keys for keys in found if keys is not None]
            all_keys = set().union(*sets) if len(sets) == len(found) else None
            self._by_epoch[later[-1]] = all_keys
        return self._by_epoch[later[-1]] if later else set()

    def complete(self, epoch: Epoch) -> None:
        """Forget the keys of an epoch that is stored, and of those before it."""
        self._complete = max(self._complete, epoch)
        for number in [n for n in self._by_epoch if n <= epoch]:
            del self._by_epoch[number]

    def forget(self) -> None:
        """Forget what was touched since the last cut: it is not there any more."""
        self._now = set()
