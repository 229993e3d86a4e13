"""Whether a state directory is a copy of one that another driver works on.

A copy has the id and the job of its original, so two drivers would write the same epochs.
Each claim says on which host and at which path its driver worked; on one host that is
enough to look.  Elsewhere nobody can tell.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError
from millstream.observe.log import logger
from millstream.state.files import LocalFiles
from millstream.state.lock import is_locked
from millstream.state.notes import Notes

if TYPE_CHECKING:
    from millstream.ports import Files
    from millstream.state.store import SnapshotStore

__all__ = ["place_of", "refuse_twin"]

_log = logger("state")


def place_of(files: Files) -> str:
    """Return who works where, as it is noted in a claim; empty behind a URL."""
    if not isinstance(files, LocalFiles):
        return ""
    path = str(files.root.resolve())
    return json.dumps({"host": socket.gethostname(), "path": path})


def refuse_twin(store: SnapshotStore, key: bytes) -> None:
    """Refuse a copy while its original is in use; say in the log that it is a copy."""
    _, place = store.newest_claim()
    own = place_of(store.files)
    if not place or not own or place == own:
        return
    there, here = json.loads(place), json.loads(own)
    original = Path(there["path"])
    if there["host"] != here["host"] or not _is_twin(store, key, original):
        return
    if _is_in_use(original):
        msg = (
            f"the state directory {here['path']} is a copy of {original}, which is in "
            "use, so both jobs would write the same epochs; stop that job, or begin "
            "with a savepoint of it"
        )
        raise SnapshotError(msg)
    _log.warning(
        "the state directory %s is a copy of %s; use only one of them from now on, as "
        "both are of one job", here["path"], original,
    )  # fmt: skip


def _is_in_use(root: Path) -> bool:
    try:
        return is_locked(root)
    except OSError:
        return False


def _is_twin(store: SnapshotStore, key: bytes, original: Path) -> bool:
    """Whether there is another directory with the same id."""
    assert isinstance(store.files, LocalFiles)
    try:
        if original.samefile(store.files.root):
            return False
        return Notes(LocalFiles(original), key).directory == store.directory
    except (OSError, SnapshotError):
        return False
