"""A source that follows a script: rows, pauses and errors, in the order given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.base import Source, SourceReader, Split

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.config import Config

__all__ = ["Pause", "Raise", "ScriptedSource"]


@dataclass(frozen=True, slots=True)
class Pause:
    """The source has nothing at this moment, once."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Reading on raises this exception."""

    exception: Exception


class ScriptedSource(Source[Any]):
    """Gives the rows of a script; `Pause` and `Raise` in it are not rows.

    Parameters
    ----------
    scripts
        One script per split.  Each is read by one task, and rows on different sides of
        a `Pause` never come in one batch.

    Examples
    --------
    >>> import millstream as ms
    >>> from millstream.testing import Pause, ScriptedSource
    >>> flow = ms.Flow("scripted")
    >>> rows = flow.read(ScriptedSource([1, 2, Pause(), 3])).collect()
    >>> _ = flow.run(on="local")
    >>> rows.result()
    [1, 2, 3]
    """

    def __init__(self, *scripts: Iterable[Any]) -> None:
        self._scripts = [list(script) for script in scripts]
        self.is_parallel = len(scripts) > 1

    def splits(self, task_count: int) -> list[Split]:  # noqa: ARG002 - as scripted
        """Return one split per script."""
        count = len(self._scripts)
        return [Split(f"script {number}", number) for number in range(count)]

    def open(self, split: Split, offset: int, config: Config) -> SourceReader[Any]:  # noqa: ARG002
        """Return a reader; the offset counts pauses and errors as well as rows."""
        return _ScriptReader(self._scripts[split.payload], offset)


class _ScriptReader(SourceReader[Any]):
    def __init__(self, script: list[Any], offset: int) -> None:
        self._script = script
        self._offset = offset

    @property
    def offset(self) -> int:
        return self._offset

    def read(self, rows: int) -> list[Any] | None:
        batch: list[Any] = []
        while self._offset < len(self._script) and len(batch) < rows:
            step = self._script[self._offset]
            if isinstance(step, Raise):
                if batch:
                    break
                raise step.exception
            self._offset += 1
            if isinstance(step, Pause):
                return batch
            batch.append(step)
        is_over = self._offset == len(self._script)
        return None if is_over and not batch else batch
