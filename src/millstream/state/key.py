"""The key under which manifests are authenticated.

It comes from the environment, or lies beside what it authenticates: then it protects
from damage and mix-ups, and from people who can write to the directory but not read the
key, as it is readable for its owner only.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError, UsageError

if TYPE_CHECKING:
    from millstream.ports import Files

__all__ = ["KEY_NAME", "KEY_VARIABLE", "state_key", "stored_key"]

KEY_NAME = "key"
KEY_VARIABLE = "MILLSTREAM_STATE_KEY"
_KEY_BYTES = 32


def state_key(files: Files) -> bytes:
    """Return the key of a state directory; make one if there is nothing to protect yet.

    Examples
    --------
    >>> import tempfile
    >>> from millstream.state.files import LocalFiles
    >>> files = LocalFiles(tempfile.mkdtemp())
    >>> state_key(files) == state_key(files)
    True
    """
    key = stored_key(files)
    if key is not None:
        return key
    if files.names("manifests"):
        msg = (
            f"{files} has snapshots but no file `{KEY_NAME}` to verify them with; put it "
            f"back, or set {KEY_VARIABLE} if that is how they were written"
        )
        raise SnapshotError(msg)
    with suppress(FileExistsError):  # another driver was first
        files.publish(KEY_NAME, secrets.token_bytes(_KEY_BYTES))
    return _read(files)


def stored_key(files: Files) -> bytes | None:
    """Return the key of a state directory, or None if it has none."""
    text = os.environ.get(KEY_VARIABLE, "")
    if text:
        return _parsed(text)
    try:
        return _read(files)
    except FileNotFoundError:
        return None


def _parsed(text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        msg = (
            f"{KEY_VARIABLE} must be {2 * _KEY_BYTES} hexadecimal digits, got "
            f"{len(text)} characters; make one with `openssl rand -hex {_KEY_BYTES}`"
        )
        raise UsageError(msg)
    return key


def _read(files: Files) -> bytes:
    key = files.read(KEY_NAME)
    if len(key) != _KEY_BYTES:
        msg = (
            f"the file `{KEY_NAME}` in {files} has {len(key)} bytes instead of "
            f"{_KEY_BYTES}; put back the one that the snapshots were written under"
        )
        raise SnapshotError(msg)
    return key
