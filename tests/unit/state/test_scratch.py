"""Scratch directories: those of the dead go, those of the living stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.state.scratch import ScratchDirectory, remove_abandoned

if TYPE_CHECKING:
    import pytest

OWNER = """
import sys
from pathlib import Path
from millstream.state.scratch import ScratchDirectory
for _ in range(2):
    Path(ScratchDirectory(sys.argv[1]).path, "data").write_text("x")
print("made", flush=True)
sys.stdin.read()
"""


def test_directories_of_a_killed_process_are_removed_by_the_next_one(
    tmp_path: Path,
) -> None:
    """And not before it is killed; a job that runs for weeks loses many workers."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        alive = set(tmp_path.iterdir())
        own = Path(ScratchDirectory(str(tmp_path)).path)
        assert set(tmp_path.iterdir()) == {*alive, own}
        owner.kill()

    next_one = Path(ScratchDirectory(str(tmp_path)).path)

    assert len(alive) == 2
    assert set(tmp_path.iterdir()) == {own, next_one}


def test_what_has_no_lock_is_left_alone(tmp_path: Path) -> None:
    """It may be a directory that is being made, or somebody else's."""
    (tmp_path / "millstream-state-abc").mkdir()
    (tmp_path / "millstream-state-file").write_text("x")

    assert remove_abandoned(str(tmp_path)) == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    """Everybody may make links in the temporary directory."""
    target = tmp_path / "precious"
    target.mkdir()
    (target / "owner.lock").write_text("")
    (tmp_path / "millstream-state-link").symlink_to(target)

    assert remove_abandoned(str(tmp_path)) == 0
    assert (target / "owner.lock").exists()


def test_directory_that_was_taken_for_abandoned_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may come between the making of a directory and its lock."""
    opened = os.open
    taken: list[str] = []

    def late(path: Any, *how: Any, **more: Any) -> int:
        lock = opened(path, *how, **more)
        if not taken:
            taken.append(str(path))
            assert remove_abandoned(str(tmp_path)) == 1
        return lock

    monkeypatch.setattr(os, "open", late)

    scratch = ScratchDirectory(str(tmp_path))

    assert [str(path) for path in tmp_path.iterdir()] == [scratch.path]
    assert not taken[0].startswith(scratch.path)
