"""Turn an exception on a worker into the message that tells the driver about it.

What functions, connectors and the packages below them put into an exception may hold the
credentials of the job; nothing of these leaves the worker.
"""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING

from millstream import errors
from millstream.credentials import cleansed, holds_secret, without_credentials
from millstream.errors import MillstreamError
from millstream.protocol.messages import Failed
from millstream.runtime.chain import TaskFailedError

if TYPE_CHECKING:
    from millstream.protocol.ids import Generation, PeerId

__all__ = ["failure_report"]

_TEXT_LETTERS_MAX = 16 * 1024
_DETAILS_LETTERS_MAX = 128 * 1024
_CAUSE_BYTES_MAX = 256 * 1024
"""A row of megabytes may stand in an error three times; the report must fit into a packet."""


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
    text = without_credentials(_shortened(text, _TEXT_LETTERS_MAX))
    details = "".join(traceback.format_exception(cause))
    details = without_credentials(_shortened(details, _DETAILS_LETTERS_MAX))
    return Failed(
        worker, generation, kind, text, operator, location, position, details,
        _pickled(cause),
    )  # fmt: skip


def _shortened(text: str, letters_max: int) -> str:
    """Return beginning and end of a long text, cut between words where there are any."""
    if len(text) <= letters_max:
        return text
    half = letters_max // 2
    begin = text[:half].rpartition(" ")[0] or text[:half]
    end = text[-half:].partition(" ")[2] or text[-half:]
    left_out = len(text) - len(begin) - len(end)
    return f"{begin} … {left_out} letters left out … {end}"


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
    if error.blame is not None and error.blame.advice:
        text += f"; {error.blame.advice}"
    return text


def _one_line(error: BaseException) -> str:
    lines = traceback.format_exception_only(error)
    return " ".join(line.strip() for line in lines)


def _pickled(error: BaseException) -> bytes:
    """Return the exception as bytes, or none where it does not survive the trip.

    One that tells a credential goes as another of its kind that does not, if that can be.
    """
    try:
        for each in (error.with_traceback(None), _restated(error)):
            data = pickle.dumps(each, protocol=5)
            copy = pickle.loads(data)  # noqa: S301 - made in the line above
            if len(data) > _CAUSE_BYTES_MAX:
                return b""
            told = f"{copy} {copy!r} {vars(copy)!r}"
            if without_credentials(told) == told and not holds_secret(data):
                return data
    except Exception:  # noqa: BLE001 - a user's exception may refuse in any way
        return b""
    return b""


def _restated(error: BaseException) -> BaseException:
    """Return an error of the same kind whose texts hold no credential."""
    reduced = error.__reduce__()
    assert isinstance(reduced, tuple), "an exception is no name"
    copy: BaseException = reduced[0](*map(cleansed, reduced[1]))
    copy.__dict__.update({n: cleansed(v) for n, v in vars(error).items()})
    return copy
