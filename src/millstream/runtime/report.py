"""Turn an exception on a worker into the message that tells the driver about it."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING

from millstream import errors
from millstream.errors import MillstreamError
from millstream.protocol.messages import Failed
from millstream.runtime.chain import TaskFailedError

if TYPE_CHECKING:
    from millstream.protocol.ids import Generation, PeerId

__all__ = ["failure_report"]


def failure_report(
    error: BaseException, worker: PeerId, generation: Generation, index: int
) -> Failed:
    """Describe a failure so that the driver can raise it as one exception."""
    cause: BaseException = error
    kind, operator, location, position = "OperationalError", "", "", ""
    if isinstance(error, TaskFailedError):
        cause = error.__cause__ or error
        kind = "OperatorError"
        operator, location = error.node.user_name, str(error.node.location)
        position = f"{error.position} (worker {index})"
        text = _sentence(error, cause)
    else:
        text = f"worker {index}: {_one_line(cause)}"
        if isinstance(error, MillstreamError):
            kind, text = _kind(error), f"worker {index}: {error}"
    details = "".join(traceback.format_exception(cause))
    return Failed(
        worker, generation, kind, text, operator, location, position, details,
        _pickled(cause),
    )  # fmt: skip


def _kind(error: MillstreamError) -> str:
    """Return the class of an error as the driver knows it; a user may have made one."""
    known = (kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return next(known).__name__


def _sentence(error: TaskFailedError, cause: BaseException) -> str:
    node = error.node
    name = node.user_name
    operator = f"{node.verb} {name!r}" if name != node.verb else node.verb
    text = f"{operator} at {node.location} raised {_one_line(cause)}; {error.position}"
    if error.blame is not None and error.blame.row_text:
        text += f", value {error.blame.row_text}"
    if error.blame is not None and error.blame.user_line:
        text += f"; raised in {error.blame.user_line}"
    return text


def _one_line(error: BaseException) -> str:
    lines = traceback.format_exception_only(error)
    return " ".join(line.strip() for line in lines)


def _pickled(error: BaseException) -> bytes:
    """Return the exception as bytes, or none where it does not survive the trip."""
    try:
        data = pickle.dumps(error.with_traceback(None), protocol=5)
        pickle.loads(data)  # noqa: S301 - made in the line above
    except Exception:  # noqa: BLE001 - a user's exception may refuse in any way
        return b""
    return data
