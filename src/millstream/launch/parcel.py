"""What is sent to workers: the deployment, and the classes of the user's program.

Functions of the program are pickled by value, but the rows that travel later are pickled
in the ordinary way, which names a class by module and name.  A class of the program that
was started is in ``__main__``, and a worker's ``__main__`` is another one; so these
classes travel along and are put there for as long as the worker runs.
"""

from __future__ import annotations

import pickle
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cloudpickle

from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.runtime.deployment import Deployment

__all__ = ["packed", "unpacked"]

_MAIN = "__main__"


def packed(deployment: Deployment) -> bytes:
    """Pickle the flow; its functions were checked, its data may still refuse."""
    try:
        data: bytes = cloudpickle.dumps((deployment, _main_classes()), protocol=5)
    except Exception as error:
        msg = (
            f"flow {deployment.stages.name!r} cannot be sent to workers: {error}; make "
            "sources, sinks and initial values of plain data"
        )
        raise UsageError(msg) from error
    return data


@contextmanager
def unpacked(data: bytes) -> Iterator[Deployment]:
    """Give the flow back, with the classes of its program in place meanwhile."""
    deployment, classes = pickle.loads(data)  # noqa: S301 - from our own driver
    main = vars(sys.modules[_MAIN])
    hidden = {name: main[name] for name in classes if name in main}
    main.update(classes)
    try:
        yield deployment
    finally:
        for name in classes:
            del main[name]
        main.update(hidden)


def _main_classes() -> dict[str, type[Any]]:
    return {
        name: value
        for name, value in list(vars(sys.modules[_MAIN]).items())
        if isinstance(value, type) and value.__module__ == _MAIN and _can_travel(value)
    }


def _can_travel(value: type[Any]) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - a class that no row needs may hold anything
        return False
    return True
