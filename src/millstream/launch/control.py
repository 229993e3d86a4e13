"""Reach a running job through its state directory.

Whoever may read the key of the directory may ask: a request is a note (`state.notes`) in
its folder ``control`` for one claim, so that no other driver takes it for its own.  The
driver takes requests by removing them, each once, and answers in a note of the same name
when it knows how they went.

::

    control/<id>.request    {"claim": 3, "savepoint": "/backups/monday", "drain": false}
    control/<id>.answer     {"epoch": 41} or {"error": "..."}

A request is what is read here; what stopping means is not known.
"""

from __future__ import annotations

import json
import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millstream.credentials import shown
from millstream.errors import MillstreamError, SnapshotError, UsageError
from millstream.protocol.job_events import OutcomeKind
from millstream.state.files import LocalFiles, files_at
from millstream.state.key import KEY_VARIABLE, stored_key
from millstream.state.lock import is_locked
from millstream.state.notes import Notes
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.launch.savepoints import Wish
    from millstream.ports import Files
    from millstream.protocol.job_events import Outcome

__all__ = ["ControlDesk", "ask_to_stop"]

_FOLDER = "control"
_REQUEST, _ANSWER = ".request", ".answer"
_REMOTE_FACTOR = 10
"""How much more seldom a directory is looked at that is not on this machine's disks."""
_WELL = (OutcomeKind.STOPPED, OutcomeKind.SUCCEEDED)
_LOOK_S = 0.1
_TAKEN_S = 30.0


class _Envelope:
    """Writes and reads what only those who have the key can write."""

    def __init__(self, files: Files, key: bytes) -> None:
        self.files = files
        self._notes = Notes(files, key)

    def put(self, name: str, content: dict[str, Any]) -> None:
        self._notes.publish(f"{_FOLDER}/{name}", json.dumps(content).encode())

    def get(self, name: str) -> dict[str, Any] | None:
        """Return what a file says; None if it is not there, or not from one of us."""
        data = self._notes.read(f"{_FOLDER}/{name}")
        if data is None:
            return None
        found: dict[str, Any] = json.loads(data)
        return found

    def remove(self, name: str) -> None:
        self.files.remove(f"{_FOLDER}/{name}")

    def requests(self) -> list[str]:
        names = [name.rpartition("/")[2] for name in self.files.names(_FOLDER)]
        return [name for name in names if name.endswith(_REQUEST)]


class ControlDesk:
    """Takes the requests to one driver, and answers them.

    Parameters
    ----------
    claim
        Of the driver; 0 for a job without a state directory, which nobody can ask.
    stop
        Called with where a savepoint is wanted, or None, and whether to drain; returns
        the wish that the driver then has.
    """

    def __init__(
        self, directory: str, key: bytes, claim: int, stop: Callable[..., Wish]
    ) -> None:
        self._envelope = _Envelope(files_at(directory), key)
        self._claim = claim
        self._stop = stop
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self._taken: dict[str, Wish] = {}

    def listen(self, is_done: threading.Event, look_s: float) -> None:
        """Begin to look for requests, until the job is over."""
        if self._claim:
            threading.Thread(
                target=self._serve,
                args=(is_done, look_s),
                name=f"millstream-control-{self._claim}",
                daemon=True,
            ).start()

    def close(self, outcome: Outcome | None, epoch: int) -> None:
        """Answer all requests, now that it is known how the job ended."""
        with self._lock:
            taken, self._taken = self._taken, {}
        answer: dict[str, Any] = {"epoch": epoch}
        if outcome is None or outcome.kind not in _WELL:
            reason = "it broke down" if outcome is None else outcome.reason
            answer = {"error": f"the job ended before it could be stopped: {reason}"}
        with suppress(OSError):
            for name in taken:
                self._answer(name, answer)

    def _serve(self, is_done: threading.Event, look_s: float) -> None:
        is_near = isinstance(self._envelope.files, LocalFiles)
        while not is_done.wait(look_s if is_near else look_s * _REMOTE_FACTOR):
            # A directory that cannot be reached now may be later.
            with suppress(OSError):
                self._look()

    def _look(self) -> None:
        for name in self._envelope.requests():
            request = None if name in self._seen else self._envelope.get(name)
            if request is not None and request.get("claim") == self._claim:
                # Who kept a copy may put it back.
                self._seen.add(name)
                self._take(name, request)
        with self._lock:
            refused = {n: w.refusal() for n, w in self._taken.items()}
            self._taken = {n: w for n, w in self._taken.items() if not refused[n]}
        for name, reason in refused.items():
            if reason:
                self._answer(name, {"error": reason})

    def _take(self, name: str, request: dict[str, Any]) -> None:
        self._envelope.remove(name)
        try:
            wish = self._stop(request["savepoint"], drain=request["drain"])
        except MillstreamError as error:
            self._answer(name, {"error": str(error)})
            return
        with self._lock:
            self._taken[name] = wish

    def _answer(self, request: str, answer: dict[str, Any]) -> None:
        self._envelope.put(request.removesuffix(_REQUEST) + _ANSWER, answer)


def ask_to_stop(
    directory: str,
    savepoint: str | None,
    *,
    drain: bool,
    wait: Callable[[float], object],
) -> int:
    """Ask the driver of a state directory to stop its job; return the last epoch.

    Parameters
    ----------
    wait
        Waits for some seconds.
    """
    if savepoint is not None and shown(savepoint) != savepoint:
        msg = (
            f"the savepoint {shown(savepoint)} was given with credentials, and the driver "
            "is asked for it by a file in the state directory; leave them out of the "
            "URL, and set them where the driver's fsspec looks for them"
        )
        raise UsageError(msg)
    files = files_at(directory)
    key = stored_key(files)
    claim = 0 if key is None else SnapshotStore(files, key).newest_claim()[0]
    if key is None or not claim:
        msg = (
            f"no job has run on {files}; name the state directory of one, and set "
            f"{KEY_VARIABLE} if the job runs with it"
        )
        raise UsageError(msg)
    envelope = _Envelope(files, key)
    own = secrets.token_hex(8)
    content = {"claim": claim, "savepoint": savepoint, "drain": drain}
    envelope.put(own + _REQUEST, content)
    try:
        _wait_until_taken(envelope, own, wait)
        return _answered(envelope, own, wait)
    finally:
        envelope.remove(own + _REQUEST)
        envelope.remove(own + _ANSWER)


def _wait_until_taken(
    envelope: _Envelope, own: str, wait: Callable[[float], object]
) -> None:
    waited_s = 0.0
    while own + _REQUEST in envelope.requests():
        if waited_s > _TAKEN_S or _is_left(envelope.files):
            msg = f"no driver works on {envelope.files}, so there is no job to stop"
            raise UsageError(msg)
        wait(_LOOK_S)
        waited_s += _LOOK_S


def _answered(envelope: _Envelope, own: str, wait: Callable[[float], object]) -> int:
    while True:
        # Looked at first: a driver answers before it leaves.
        is_left = _is_left(envelope.files)
        answer = envelope.get(own + _ANSWER)
        if answer is not None and "error" in answer:
            raise SnapshotError(str(answer["error"]))
        if answer is not None:
            return int(answer["epoch"])
        if is_left:
            msg = (
                f"the driver of {envelope.files} ended without an answer; start the job again "
                "to go on from its last snapshot"
            )
            raise SnapshotError(msg)
        wait(_LOOK_S)


def _is_left(files: Files) -> bool:
    """Whether it is certain that no driver holds the directory."""
    return isinstance(files, LocalFiles) and not is_locked(files.root)
