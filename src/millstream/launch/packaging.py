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
from dataclasses import replace
from typing import TYPE_CHECKING

import cloudpickle

from millstream.credentials import apart
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import Broadcast

    from millstream.runtime.deployment import Deployment

    Shipped = bytes | Broadcast[bytes]
    """What is large of a flow, as a task of Spark refers to it."""

__all__ = ["packed", "parted", "unpacked"]

_MAIN = "__main__"
_LENGTH_BYTES = 4


def packed(deployment: Deployment) -> bytes:
    """Pickle the flow; its functions were checked, its data may still refuse.

    What is secret comes first, behind its length, so that it can travel apart.
    """
    values: list[tuple[str, tuple[str, ...] | None]] = []
    bare = replace(deployment, state_directory="", state_key=b"")
    try:
        with apart(values):
            body: bytes = cloudpickle.dumps((bare, _main_classes()), protocol=5)
    except Exception as error:
        msg = (
            f"flow {deployment.stages.name!r} cannot be sent to workers: "
            f"{_holder(deployment)}{error}; make sources, sinks and initial values of "
            "plain data"
        )
        raise UsageError(msg) from error
    kept = (values, deployment.state_directory, deployment.state_key)
    secrets = pickle.dumps(kept, protocol=5)
    return len(secrets).to_bytes(_LENGTH_BYTES, "big") + secrets + body


def parted(data: bytes) -> tuple[bytes, bytes]:
    """Return what is secret, and the rest; both together are what was packed."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    return data[:end], data[end:]


def _holder(deployment: Deployment) -> str:
    """Say whose data refuses, if it is that of an operator."""
    for stage in deployment.stages.stages:
        for node in stage.nodes:
            if not _can_travel(node.spec):
                return f"`{node.verb}` at {node.location}, "
    return ""


@contextmanager
def unpacked(data: bytes) -> Iterator[Deployment]:
    """Give the flow back, with the classes of its program in place meanwhile."""
    secrets, body = parted(data)
    kept = pickle.loads(secrets[_LENGTH_BYTES:])  # noqa: S301 - from our own driver
    values, directory, key = kept
    with apart(values):
        bare, classes = pickle.loads(body)  # noqa: S301 - from our own driver
    deployment = replace(bare, state_directory=directory, state_key=key)
    main = vars(sys.modules[_MAIN])
    hidden = {name: main[name] for name in classes if name in main}
    main.update(classes)
    try:
        yield deployment
    finally:
        for name in classes:
            del main[name]
        main.update(hidden)


def _main_classes() -> dict[str, type]:
    return {
        name: value
        for name, value in list(vars(sys.modules[_MAIN]).items())
        if isinstance(value, type) and value.__module__ == _MAIN and _can_travel(value)
    }


def _can_travel(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - pickling may raise anything
        return False
    return True
