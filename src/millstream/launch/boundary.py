"""What may leave `run`, `wait` and `result`: errors of `millstream.errors`, and interrupts.

Whatever else is raised on the way is the cause of one: of an `OperatorError` where a source
or a sink was asked for something, and of an `InternalError`, which is a bug, elsewhere.
None of them, nor its cause, holds a credential.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.credentials import (
    cleanse,
    harmless,
    one_line,
    shown,
    without_credentials,
)
from millstream.errors import (
    InternalError,
    MillstreamError,
    OperatorError,
    SnapshotError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["asking", "copying", "public_errors"]


@contextmanager
def public_errors() -> Iterator[None]:
    """Let nothing out that users cannot catch as a `MillstreamError`, or may not see."""
    try:
        with _ours():
            yield
    except MillstreamError as error:
        cleanse(error)
        raise


@contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        msg = (
            f"Millstream failed with {type(error).__name__}: {error}; this is a bug in "
            "Millstream, please report it with the traceback above"
        )
        raise InternalError(msg) from error


@contextmanager
def asking(operator: str, for_what: str, location: str = "") -> Iterator[None]:
    """Say whose source or sink it was that could not do what the driver asked it for."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        place = f" at {location}" if location else ""
        msg = (
            f"{operator!r}{place} raised {type(error).__name__} when asked {for_what}: "
            f"{without_credentials(str(error))}"
        )
        raise OperatorError(msg, operator=operator, location=location) from error


@contextmanager
def copying(path: str | None) -> Iterator[None]:
    """Say in one sentence why a savepoint cannot be written."""
    try:
        yield
    except OSError as error:
        msg = (
            f"no savepoint can be written to {shown(path or '')} "
            f"({one_line(error, path or '')}); name a directory that the driver can write"
        )
        raise SnapshotError(msg) from harmless(error, path or "")
