"""Who may have written a local state directory, and what is never opened in it."""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SnapshotError
from millstream.state.files import LocalFiles
from millstream.state.guard import Verdict, check_root, judged, read_private
from millstream.state.key import state_key, stored_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give files to another user"
)
STRANGER = 65534


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@given(is_own=st.booleans(), mode=st.integers(0, 0o7777), is_unwritten=st.booleans())
def test_nobody_else_has_rights_in_what_is_accepted(
    *, is_own: bool, mode: int, is_unwritten: bool
) -> None:
    """And tightening is enough: what is tightened is accepted afterwards."""
    verdict = judged(is_own=is_own, mode=mode, is_unwritten=is_unwritten)

    if verdict is Verdict.ACCEPT:
        assert is_own
        assert not mode & 0o077
    if verdict is Verdict.TIGHTEN:
        later = judged(is_own=is_own, mode=mode & 0o700, is_unwritten=False)
        assert later is Verdict.ACCEPT
    if mode & 0o022 and not mode & stat.S_ISVTX and not is_unwritten:
        assert verdict is Verdict.REFUSE


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o700, 0o1777])
def test_own_directory_that_others_can_read_is_tightened(
    mode: int, tmp_path: Path
) -> None:
    """Nobody else could have taken anything away, and what they added is their own."""
    (tmp_path / "manifests").mkdir()
    tmp_path.chmod(mode)
    check_root(tmp_path, tightens=True)
    assert mode_of(tmp_path) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o702])
def test_directory_with_snapshots_that_others_can_write_is_refused(
    mode: int, tmp_path: Path
) -> None:
    """The sentence names what was found and every way out, and nothing is changed."""
    files = LocalFiles(tmp_path)
    state_key(files)
    tmp_path.chmod(mode)
    with pytest.raises(SnapshotError):
        stored_key(files)
    with pytest.raises(SnapshotError, match=f"has the mode {mode:04o}") as caught:
        state_key(files)
    text = str(caught.value)
    assert str(tmp_path) in text
    assert "chmod 700" in text
    assert "MILLSTREAM_STATE_KEY" in text
    assert mode_of(tmp_path) == mode


def test_new_directory_that_a_group_can_write_is_tightened(tmp_path: Path) -> None:
    """Many systems make all directories so, and nothing lies there yet."""
    root = tmp_path / "state"
    root.mkdir()
    root.chmod(0o775)
    state_key(LocalFiles(root))
    assert mode_of(root) == 0o700


def test_key_from_elsewhere_makes_rights_the_users_business(tmp_path: Path) -> None:
    """Whoever can write cannot prove anything."""
    (tmp_path / "manifests").mkdir()
    tmp_path.chmod(0o777)
    assert state_key(LocalFiles(tmp_path), bytes(32)) == bytes(32)
    assert mode_of(tmp_path) == 0o777


def test_looking_changes_no_rights(tmp_path: Path) -> None:
    """The command line only reads."""
    tmp_path.chmod(0o755)
    assert stored_key(LocalFiles(tmp_path)) is None
    assert mode_of(tmp_path) == 0o755


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_key_that_others_could_have_is_refused(mode: int, tmp_path: Path) -> None:
    """It proves nothing any more."""
    files = LocalFiles(tmp_path)
    state_key(files)
    (tmp_path / "key").chmod(mode)
    with pytest.raises(SnapshotError, match=rf"has the mode {mode:04o}.* chmod 600"):
        state_key(files)


@needs_root
def test_key_of_another_user_is_refused(tmp_path: Path) -> None:
    """He may have planted it, also before the directory was made private."""
    files = LocalFiles(tmp_path)
    state_key(files)
    os.chown(tmp_path / "key", STRANGER, STRANGER)
    with pytest.raises(SnapshotError, match=f"key belongs to user {STRANGER}"):
        stored_key(files)


def test_directory_may_be_named_by_a_link(tmp_path: Path) -> None:
    """What counts is where it leads."""
    (tmp_path / "real").mkdir(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files = LocalFiles(tmp_path / "link")
    assert state_key(files) == state_key(LocalFiles(tmp_path / "real"))
    assert mode_of(tmp_path / "real") == 0o700


@needs_root
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_that_another_user_made_is_refused(
    *, is_there: bool, tmp_path: Path
) -> None:
    """Where it leads is the user's own, and which of these is not for others to say."""
    if is_there:
        (tmp_path / "real").mkdir(0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    os.lchown(link, STRANGER, STRANGER)
    with pytest.raises(SnapshotError, match=f"a link that user {STRANGER} made"):
        state_key(LocalFiles(link))


@needs_root
def test_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Even an empty one, and whatever its mode says."""
    os.chown(tmp_path, STRANGER, STRANGER)
    with pytest.raises(SnapshotError, match=f"belongs to user {STRANGER}"):
        state_key(LocalFiles(tmp_path))


def a_fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def a_link(path: Path) -> None:
    target = path.parent.parent / "target"
    target.write_bytes(bytes(32))
    path.symlink_to(target)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root can make a device")


NO_FILES = [a_fifo, a_link, a_folder, a_device]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", NO_FILES)
def test_key_must_be_a_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A pipe would let the driver wait for ever, a link takes what another has made."""
    root = tmp_path / "state"
    root.mkdir(0o700)
    make(root / "key")
    with pytest.raises(SnapshotError, match="no regular file"):
        state_key(LocalFiles(root))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", NO_FILES)
def test_what_is_no_file_is_not_there(
    make: Callable[[Path], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is left alone, by name, once."""
    root = tmp_path / "state"
    files = LocalFiles(root)
    files.create("epochs/00000001/run-1.state", [b"1"])
    strange = root / "epochs" / "strange"
    make(strange)
    with caplog.at_level(logging.WARNING, "millstream.state"):
        assert files.names("epochs") == ["epochs/00000001/run-1.state"]
        assert files.names("epochs") == ["epochs/00000001/run-1.state"]
    with pytest.raises(FileNotFoundError):
        files.read("epochs/strange")
    is_named = make is not a_folder
    assert caplog.text.count(str(strange)) == is_named
    assert os.path.lexists(strange)


def test_folder_behind_a_link_is_not_listed(tmp_path: Path) -> None:
    """Neither one inside, nor the folder itself."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run-1.state").write_bytes(b"1")
    root = tmp_path / "state"
    (root / "epochs").mkdir(parents=True)
    (root / "epochs" / "00000001").symlink_to(outside)
    (root / "manifests").symlink_to(outside)
    files = LocalFiles(root)
    assert files.names("epochs") == files.names("manifests") == []
    with pytest.raises(FileNotFoundError):
        files.read("epochs/00000001/run-1.state")


def test_only_the_beginning_of_a_large_file_is_read(tmp_path: Path) -> None:
    """A file of a petabyte, which takes no room on the disk, takes none in memory."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    assert len(LocalFiles(tmp_path).read("large", 100)) == 100
    (tmp_path / "large").chmod(0o600)
    assert len(read_private(tmp_path / "large", 33)) == 33


def test_umask_gives_nobody_rights(tmp_path: Path) -> None:
    """Whatever the user's other programs do."""
    before = os.umask(0)
    try:
        root = tmp_path / "deep" / "state"
        files = LocalFiles(root)
        files.create("epochs/00000001/run-1.state", [b"1"])
        files.publish("manifests/m", b"1")
    finally:
        os.umask(before)
    found = [root, *root.rglob("*")]
    assert {mode_of(path) for path in found if path.is_dir()} == {0o700}
    assert {mode_of(path) for path in found if path.is_file()} == {0o600}
