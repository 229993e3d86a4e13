"""What tests with real processes need: waiting, looking, running driver programs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "DEADLINE_S",
    "SLOTS",
    "driver_environment",
    "eventually",
    "is_gone",
    "run_driver",
]

DEADLINE_S = 100.0
SLOTS = 4
"""Task slots of the session that the tests share."""


def eventually(is_true: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
    """Wait until a condition holds, and return its value."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_s
    while True:
        value = is_true()
        if value or time.monotonic() > deadline:
            assert value, f"nothing happened within {timeout_s} s"
            return value
        pause.wait(0.05)


def is_gone(pid: int) -> bool:
    """Whether no process with this id runs; a zombie does not run."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def driver_environment(**changes: str) -> dict[str, str]:
    """Return the environment of a driver program on this machine."""
    loopback = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **loopback, **changes}


def run_driver(
    program: Path,
    *arguments: str,
    command: tuple[str, ...] = (sys.executable,),
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Run a driver program to its end; its answer is on standard output."""
    return subprocess.run(
        [*command, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
        env=driver_environment(**env),
        cwd=program.parent,
        check=False,
    )
