"""The key under which everything in a state directory is authenticated.

It is *given*, by the caller or in the environment, or lies in the directory that it
authenticates.  Then it protects from damage and mix-ups, and from other people only as far
as the file system keeps them from writing the directory: on a local disk that is looked at
(`state.guard`), at a URL nobody can tell, so whoever can write there can run code in the
job.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError, UsageError
from millstream.observe.log import logger
from millstream.state.files import LocalFiles, RemoteFiles
from millstream.state.guard import check_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.ports import Files

    KeySource = bytes | Callable[[], bytes]

__all__ = [
    "KEY_BYTES",
    "KEY_NAME",
    "KEY_VARIABLE",
    "given_key",
    "state_key",
    "stored_key",
    "warn_unguarded",
]

KEY_NAME = "key"
KEY_VARIABLE = "MILLSTREAM_STATE_KEY"
KEY_BYTES = 32

_log = logger("state")


def given_key(source: KeySource | None = None) -> bytes | None:
    """Return the key that the caller has, or makes, or that the environment holds.

    Examples
    --------
    >>> given_key(lambda: bytes(32)) == given_key(bytes(32)) == bytes(32)
    True
    """
    try:
        key = source() if callable(source) else source
    except Exception as error:
        msg = (
            f"state_key raised {type(error).__name__}: {error}; it must return the key"
        )
        raise UsageError(msg) from error
    if key is None:
        text = os.environ.get(KEY_VARIABLE, "")
        return _parsed(text) if text else None
    if type(key) is not bytes or len(key) != KEY_BYTES:
        size = f"{len(key)} bytes" if type(key) is bytes else type(key).__name__
        msg = (
            f"state_key must be {KEY_BYTES} bytes, or a function that returns them, got "
            f"{size}; make them with `secrets.token_bytes({KEY_BYTES})` and keep them"
        )
        raise UsageError(msg)
    return key


def state_key(files: Files, given: bytes | None = None) -> bytes:
    """Return the key of a state directory; make one if there is nothing to protect yet.

    Parameters
    ----------
    given
        See `given_key`.

    Raises
    ------
    SnapshotError
        If others may have written the directory and no key is given.

    Examples
    --------
    >>> import tempfile
    >>> from millstream.state.files import LocalFiles
    >>> files = LocalFiles(tempfile.mkdtemp())
    >>> state_key(files) == state_key(files)
    True
    """
    given = given or given_key()
    if given is not None:
        return given
    key = _found(files, tightens=True)
    if key is not None:
        return key
    if files.names("manifests"):
        msg = (
            f"{files} has snapshots but no file `{KEY_NAME}` to verify them with; put it "
            f"back, or set {KEY_VARIABLE} if that is how they were written"
        )
        raise SnapshotError(msg)
    with suppress(FileExistsError):  # another driver was first
        files.publish(KEY_NAME, secrets.token_bytes(KEY_BYTES))
    key = _found(files, tightens=True)
    if key is None:
        msg = f"the file `{KEY_NAME}` in {files} is gone as soon as it is written"
        raise SnapshotError(msg)
    return key


def stored_key(files: Files, given: bytes | None = None) -> bytes | None:
    """Return the key of a state directory, or None if it has none; changes nothing."""
    given = given or given_key()
    return _found(files, tightens=False) if given is None else given


def warn_unguarded(files: Files, given: bytes | None = None) -> None:
    """Say in the log that a key lies where nobody can tell who could have put it."""
    if isinstance(files, RemoteFiles) and (given or given_key()) is None:
        _log.warning(
            "the key of %s lies in it, so whoever can write there can run code in this "
            "job; set %s or pass state_key=",
            files, KEY_VARIABLE,
        )  # fmt: skip


def _parsed(text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        msg = (
            f"{KEY_VARIABLE} must be {2 * KEY_BYTES} hexadecimal digits, got "
            f"{len(text)} characters; make one with `openssl rand -hex {KEY_BYTES}`"
        )
        raise UsageError(msg)
    return key


def _found(files: Files, *, tightens: bool) -> bytes | None:
    try:
        if isinstance(files, LocalFiles):
            check_root(files.root, tightens=tightens)
            key = files.read_private(KEY_NAME, KEY_BYTES + 1)
        else:
            key = files.read(KEY_NAME, KEY_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(key) != KEY_BYTES:
        size = len(key) if len(key) <= KEY_BYTES else f"more than {KEY_BYTES}"
        msg = (
            f"the file `{KEY_NAME}` in {files} has {size} bytes instead of "
            f"{KEY_BYTES}; put back the one that the snapshots were written under"
        )
        raise SnapshotError(msg)
    return key
