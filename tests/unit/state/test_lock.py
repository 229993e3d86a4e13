"""The lock of a local state directory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.errors import SnapshotError
from millstream.state.lock import DirectoryLock

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import pathlib, sys
from millstream.state.lock import DirectoryLock
lock = DirectoryLock(pathlib.Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_second_driver_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    """The sentence names the process to look for."""
    lock = DirectoryLock(tmp_path / "state")
    with pytest.raises(SnapshotError, match=f"in use by process {os.getpid()};"):
        DirectoryLock(tmp_path / "state")
    lock.release()
    DirectoryLock(tmp_path / "state").release()


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    """Nobody has to clean up after a kill."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(SnapshotError, match=f"process {holder.pid};"):
            DirectoryLock(tmp_path)
        holder.kill()
        holder.wait()
    DirectoryLock(tmp_path).release()


def test_a_file_that_was_linked_there_is_not_written(tmp_path: Path) -> None:
    """With a given key others may write the directory, and link what is not theirs."""
    precious = tmp_path / "precious"
    precious.write_text("the only copy")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lock").hardlink_to(precious)

    lock = DirectoryLock(tmp_path / "state")
    with pytest.raises(SnapshotError, match="is in use"):
        DirectoryLock(tmp_path / "state")
    lock.release()

    assert precious.read_text() == "the only copy"
