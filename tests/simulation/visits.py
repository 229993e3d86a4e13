"""Which rare branches of the engine some seeds come to.

A swarm whose seeds never come to a branch proves nothing about it.  Seeds are run in
pieces, so that a test may stop as soon as it has seen everything.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest

    Branch = tuple[type[Any], str, Callable[..., Any]]
    """A class, the name of its method, and whether a call of it is the rare one."""

__all__ = ["Visits", "pieces"]

_PIECE_SEEDS = 10


class Visits:
    """Counts how often each branch is come to."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, branches: Mapping[str, Branch]
    ) -> None:
        self._counts: Counter[str] = Counter(dict.fromkeys(branches, 0))
        for branch, (owner, name, is_rare) in branches.items():
            self._watch(monkeypatch, branch, owner, name, is_rare)

    @property
    def missing(self) -> list[str]:
        """The branches that nobody has come to yet."""
        return [branch for branch, visits in self._counts.items() if not visits]

    def _watch(
        self,
        monkeypatch: pytest.MonkeyPatch,
        branch: str,
        owner: type[Any],
        name: str,
        is_rare: Callable[..., Any],
    ) -> None:
        original = getattr(owner, name)

        def visited(*arguments: Any, **options: Any) -> Any:
            self._counts[branch] += bool(is_rare(*arguments))
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, visited)


def pieces(seeds: range) -> Iterator[range]:
    """Cut the seeds into pieces that take a moment each."""
    for start in range(0, len(seeds), _PIECE_SEEDS):
        yield seeds[start : start + _PIECE_SEEDS]
