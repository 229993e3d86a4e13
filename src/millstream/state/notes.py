"""Small files of a state directory that only those can write who have its key.

A note is a body and an HMAC over the id of the directory, the name of the file and the
body, so that it counts nowhere else and under no other name.  The id is random and is made
with the directory; it lies in the file ``directory``, authenticated as well::

    directory    id:32 hexadecimal digits    hmac:32 bytes
    any note     body                        hmac:32 bytes

What nobody with the key wrote is ignored, and the log says so: a file that a stranger
leaves must not stop a job.  What the bodies say is not known here.
"""

from __future__ import annotations

import hmac
import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError
from millstream.observe.log import logger
from millstream.protocol.handshake import derive_key

if TYPE_CHECKING:
    from millstream.ports import Files

__all__ = ["DIRECTORY_BYTES", "DIRECTORY_NAME", "Notes"]

DIRECTORY_NAME = "directory"
DIRECTORY_BYTES = 16
_NOTE_BYTES_MAX = 65_536
_PROOF_BYTES = 32
_LINE_END = "\n"
"""Ends the name in what is proved, so no name of a note has one."""
_ID = re.compile(rb"[0-9a-f]{32}")

_log = logger("state")


class Notes:
    """The notes of one state directory.

    Examples
    --------
    >>> import tempfile
    >>> from millstream.state.files import LocalFiles
    >>> files = LocalFiles(tempfile.mkdtemp())
    >>> notes = Notes(files, bytes(32))
    >>> notes.make_directory()
    >>> notes.publish("claims/000001", b"word-count")
    >>> notes.read("claims/000001")
    b'word-count'
    >>> files.publish("claims/000002", b"word-count")
    >>> notes.read("claims/000002") is None
    True
    """

    def __init__(self, files: Files, key: bytes) -> None:
        self.files = files
        self._key = derive_key(key, b"note")
        self._directory_key = derive_key(key, b"directory")
        self._directory = b""
        self._told: set[str] = set()

    def make_directory(self) -> None:
        """Give the directory an id, unless it has one."""
        text = secrets.token_hex(DIRECTORY_BYTES).encode()
        proof = hmac.digest(self._directory_key, text, "sha256")
        if self._found_directory() is None:
            with suppress(FileExistsError):  # another driver was first
                self.files.publish(DIRECTORY_NAME, text + proof)

    @property
    def directory(self) -> bytes:
        """The id of the directory."""
        if not self._directory:
            found = self._found_directory()
            if found is None:
                msg = (
                    f"the file `{DIRECTORY_NAME}` of {self.files}, which its snapshots "
                    "belong to, is missing; put it back, or resume from a savepoint"
                )
                raise SnapshotError(msg)
            self._directory = found
        return self._directory

    def publish(self, name: str, body: bytes) -> None:
        """Let a note appear; raises `FileExistsError`."""
        self.files.publish(name, body + self._proof(name, body))

    def create(self, name: str, body: bytes) -> None:
        """Write a note of which half may be left by a crash, which is none."""
        self.files.create(name, [body + self._proof(name, body)])

    def read(self, name: str) -> bytes | None:
        """Return what a note says; None if it is gone, or nobody with the key wrote it."""
        try:
            data = self.files.read(name, _NOTE_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        except PermissionError:
            data = b""
        body = data[:-_PROOF_BYTES]
        is_sound = len(data) <= _NOTE_BYTES_MAX and _LINE_END not in name
        if is_sound and self._is_proof(data[len(body) :], name, body):
            return body
        self._tell(name)
        return None

    def _is_proof(self, proof: bytes, name: str, body: bytes) -> bool:
        try:
            return hmac.compare_digest(proof, self._proof(name, body))
        except SnapshotError:
            # The directory has no id that we know, so there is no proof for it.
            return False

    def _proof(self, name: str, body: bytes) -> bytes:
        text = self.directory + name.encode() + _LINE_END.encode() + body
        return hmac.digest(self._key, text, "sha256")

    def _found_directory(self) -> bytes | None:
        try:
            data = self.files.read(DIRECTORY_NAME, _NOTE_BYTES_MAX)
        except FileNotFoundError:
            return None
        text, proof = data[:-_PROOF_BYTES], data[-_PROOF_BYTES:]
        is_proved = hmac.compare_digest(
            proof, hmac.digest(self._directory_key, text, "sha256")
        )
        if not is_proved or not _ID.fullmatch(text):
            msg = (
                f"the file `{DIRECTORY_NAME}` of {self.files} was changed after it was "
                "written, or written under another key; put it back, or set the key of "
                "that job"
            )
            raise SnapshotError(msg)
        return bytes.fromhex(text.decode())

    def _tell(self, name: str) -> None:
        """Say once that a note is ignored."""
        if name not in self._told:
            self._told.add(name)
            _log.warning(
                "%s in %s was not written by a driver of this directory, so it is ignored",
                name, self.files,
            )  # fmt: skip
