"""Another user plants snapshots; a job that finds them must not run what is in them.

What is planted is good: whoever trusts it runs it, which each attack is compared with.
"""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import subprocess
import tempfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.errors import SnapshotError
from millstream.state.files import LocalFiles
from millstream.state.key import KEY_VARIABLE, state_key
from millstream.state.layout import ManifestId
from millstream.state.manifest import encoded_manifest
from millstream.state.plain import OBJECTS
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGER = 65534
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can be two users, himself and another"
)
PLANT = """
set -e
cd "$2"
for name in key directory lock manifests epochs claims newest; do mv $name .$name; done
cp -r "$1"/. .
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory that every user can look into."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run(state: Path, **options: Any) -> list[int]:
    flow = ms.Flow("daily")
    rows = flow.from_iterable([1, 2, 3], name="in").collect(name="out")
    flow.run(on="local", state=state, **options)
    return list(rows.result())


class Bomb:
    """Runs code where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


def trap(root: Path, mark: Path) -> None:
    """Make snapshots under a key of their own that run code in whoever trusts them."""
    run(root)
    files = LocalFiles(root)
    key = state_key(files)
    store = SnapshotStore(files, key)
    manifest = store.newest()
    assert manifest is not None
    assert manifest.splits is not None
    bomb = OBJECTS + pickle.dumps(Bomb(mark))
    ref = replace(manifest.splits, length=len(bomb), sha256=sha256(bomb).hexdigest())
    (root / ref.name).write_bytes(bomb)
    name = ManifestId(manifest.claim, manifest.epoch).name
    changed = replace(manifest, splits=ref, ended=(), ended_operators=())
    (root / name).write_bytes(encoded_manifest(changed, key, store.directory))


def planted(place: Path, mode: int) -> tuple[Path, Path]:
    """Let another user put a trap into a directory of ours that they can write."""
    state, evil, mark = place / "state", place / "evil", place / "mark"
    run(state)
    trap(evil, mark)
    state.chmod(mode)
    os.chown(state, -1, STRANGER)
    for path in (evil, *evil.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    shell = ["/bin/sh", "-c", PLANT, "sh", str(evil), str(state)]
    subprocess.run(shell, check=True, user=STRANGER, group=STRANGER, extra_groups=[])
    return state, mark


def test_trap_works_where_it_is_trusted(place: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    trap(place / "state", place / "mark")
    with pytest.raises(ms.MillstreamError):
        run(place / "state")
    assert (place / "mark").exists()


@needs_root
@pytest.mark.parametrize("mode", [0o2775, 0o777])
def test_planted_snapshots_are_refused(mode: int, place: Path) -> None:
    """The directory was open to a group, and the key the owner's alone."""
    state, mark = planted(place, mode)
    with pytest.raises(SnapshotError, match=rf"{state} belongs to user 0 .*{mode:04o}"):
        run(state)
    assert not mark.exists()


@needs_root
def test_planted_snapshots_are_refused_after_the_door_is_shut(place: Path) -> None:
    """Their key is still another's."""
    state, mark = planted(place, 0o2775)
    state.chmod(0o700)
    with pytest.raises(SnapshotError, match=f"key belongs to user {STRANGER}"):
        run(state)
    assert not mark.exists()


@needs_root
@pytest.mark.parametrize("how", ["resume_from", "state"])
def test_snapshots_in_a_directory_of_another_user_are_refused(
    how: str, place: Path
) -> None:
    """A savepoint that somebody hands over runs what they like."""
    trap(place / "evil", place / "mark")
    for path in (place / "evil", *(place / "evil").rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    options = {"state": place / "state"} | {how: place / "evil"}
    with pytest.raises(SnapshotError, match=f"evil belongs to user {STRANGER}"):
        run(**options)
    assert not (place / "mark").exists()


@pytest.mark.parametrize("kind", ["environment", "argument"])
def test_key_from_elsewhere_keeps_planted_snapshots_out(
    kind: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever planted them does not have it, whosoever the files are."""
    trap(place / "state", place / "mark")
    options = {"state_key": lambda: bytes(range(32))} if kind == "argument" else {}
    if not options:
        monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    with pytest.raises(SnapshotError, match="written under another key"):
        run(place / "state", **options)
    assert not (place / "mark").exists()


def test_job_leaves_nothing_that_others_can_read(place: Path) -> None:
    """State, results, savepoints; the umask is the most careless one."""
    before = os.umask(0)
    try:
        flow = ms.Flow("daily")
        flow.from_iterable([1, 2, 3]).group_by(lambda row: row).count().collect()
        job = flow.start(on="local", state=place / "state")
        job.stop(place / "savepoint", drain=True)
    finally:
        os.umask(before)
    for root in (place / "state", place / "savepoint"):
        found = [root, *root.rglob("*")]
        assert len(found) > 8
        assert not [path for path in found if stat.S_IMODE(path.lstat().st_mode) & 0o77]


def test_directory_of_an_earlier_version_is_tightened(place: Path) -> None:
    """It made 0755, and the user's own directory is no reason to refuse them."""
    rows = run(place / "state")
    (place / "state").chmod(0o755)
    assert run(place / "state") == rows
    assert stat.S_IMODE((place / "state").stat().st_mode) == 0o700


def test_copy_of_a_directory_in_use_is_refused(place: Path) -> None:
    """Both jobs would write the same epochs."""
    flow = ms.Flow("endless")
    flow.from_iterable(lambda: iter(int, 1)).for_each(str)
    job = flow.start(on="local", state=place / "state", snapshot_every="1h")
    job.savepoint(place / "savepoint")
    shutil.copytree(place / "state", place / "copy")
    with pytest.raises(
        SnapshotError, match=r"copy is a copy of .*/state, which is in u"
    ):
        flow.start(on="local", state=place / "copy")
    job.cancel()
