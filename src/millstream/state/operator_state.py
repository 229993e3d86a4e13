"""The interface of a user's function that remembers something across rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from millstream.errors import SnapshotError

__all__ = ["OperatorState"]


class OperatorState(ABC):
    """A function with a memory that snapshots know of.

    Give an object of such a class, with a `__call__`, to `map`, `filter`, `flat_map`,
    `map_batches`, `for_each` and their kin.  Each task works with a deep copy.  What
    `capture` returns is stored with every snapshot and given to `restore`, before the
    first row, when the task goes on from there.

    The memory belongs to the task, not to a key; for memory by key use a
    `StatefulFunction`.

    Examples
    --------
    >>> import millstream as ms
    >>> class Numbered(ms.OperatorState):
    ...     def __init__(self):
    ...         self.count = 0
    ...
    ...     def __call__(self, row):
    ...         self.count += 1
    ...         return self.count, row
    ...
    ...     def capture(self):
    ...         return self.count
    ...
    ...     def restore(self, value):
    ...         self.count = value
    ...
    ...     def merge(self, values):
    ...         return max(values)
    >>> flow = ms.Flow("numbered")
    >>> numbered = flow.from_iterable("abc").map(Numbered()).collect()
    >>> _ = flow.run(on="local")
    >>> numbered.result()
    [(1, 'a'), (2, 'b'), (3, 'c')]
    """

    #: By this the planner, which does not know this class, tells that state is kept.
    is_remembering: ClassVar[bool] = True

    @abstractmethod
    def capture(self) -> Any:
        """Return what must be remembered; it is encoded at once."""

    @abstractmethod
    def restore(self, value: Any) -> None:
        """Take over what `capture` returned in an earlier run."""

    def merge(self, values: list[Any]) -> Any:
        """Return one value for what several tasks remembered.

        Called when a job goes on with fewer tasks than it had; needed only then.
        """
        name = type(self).__qualname__
        msg = (
            f"the states of {len(values)} tasks of {name} must become one, and {name} "
            "has no `merge`; define `merge(self, values)`, or go on with as many "
            "workers as before"
        )
        raise SnapshotError(msg)
