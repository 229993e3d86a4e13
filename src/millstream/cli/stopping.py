"""What ``millstream stop`` does once its options are known."""

from __future__ import annotations

import threading
from pathlib import Path

from millstream.launch.control import ask_to_stop

__all__ = ["stop_job"]


def stop_job(directory: str, savepoint: str | None, *, drain: bool) -> str:
    """Ask for the end of a job, wait for it, and return a line about it."""
    if savepoint is not None and "://" not in savepoint:
        savepoint = str(Path(savepoint).absolute())
    pause = threading.Event()
    epoch = ask_to_stop(directory, savepoint, drain=drain, wait=pause.wait)
    copied = "" if savepoint is None else f"; a savepoint is at {savepoint}"
    return f"the job has stopped, its last epoch is {epoch}{copied}"
