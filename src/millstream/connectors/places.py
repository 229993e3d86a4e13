"""The files of a source by names that may be stored and shown.

A split outlives the program that made it, and so may a credential in the URL of its file.
Splits therefore name a file as `millstream.credentials.shown` does; the URL is that of the
program that runs, whose password or signature may be another one by now.

Nothing here opens anything.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from millstream.credentials import Credential, lent, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Places"]


class Places:
    """Paths and URLs by their names; of files that are shown alike the next is numbered.

    Examples
    --------
    >>> places = Places(
    ...     ["https://host/a.csv?sig=1", "https://host/a.csv?sig=2", "b.csv"]
    ... )
    >>> list(places)
    ['https://host/a.csv', 'https://host/a.csv (2)', 'b.csv']
    >>> places["https://host/a.csv (2)"]
    'https://host/a.csv?sig=2'
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._places: dict[str, Credential] = {}
        seen: Counter[str] = Counter()
        for file in files:
            name = shown(file)
            seen[name] += 1
            number = f" ({seen[name]})" if seen[name] > 1 else ""
            self._places[name + number] = Credential(file)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, name: str) -> str:
        """Return where a file is, also one that is not among those that were found now."""
        found = self._places.get(shown(name))
        if found is not None:
            return found.value
        first = next(iter(self._places.values()), Credential(name))
        return lent(name, first.value)

    def of(self, names: Iterable[str]) -> Places:
        """Return some of them, by the same names."""
        chosen = Places(())
        chosen._places.update((name, self._places[name]) for name in names)
        return chosen
