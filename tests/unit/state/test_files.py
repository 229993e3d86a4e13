"""Files in a directory and behind a URL: what was promised holds when calls fail."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from tests.support.snapshots import JOB, KEY, Driver
from tests.support.stores import STORES, Store, object_server, store

from millstream.errors import SnapshotError, UsageError
from millstream.state.files import LocalFiles, RemoteFiles, files_at
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.ports import Files

__all__ = ["object_server", "store"]

ERRORS = {"fsync": errno.EIO, "write": errno.ENOSPC, "open": errno.ENOSPC}


class Quick:
    """`os` without the disk's part of a sync, which these tests do not look at."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, fd: int, /) -> None:
        os.fstat(fd)


class Stuttering(Quick):
    """`os` that writes one byte at a time."""

    def write(self, fd: int, data: memoryview, /) -> int:
        return os.write(fd, data[:1])


class Failing:
    """`os`, one call of which fails, or all that need space from one on.

    Parameters
    ----------
    at
        Number of the call, counting those of `only` if it is given.
    """

    def __init__(self, at: int, *, for_good: bool = False, only: str = "") -> None:
        self.calls = 0
        self.failed: list[str] = []
        self._at = at
        self._for_good = for_good
        self._only = only

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            is_due = self.calls == self._at or (
                self._for_good and self.calls > self._at
            )
            is_counted = self._only in {"", name}
            self.calls += is_counted
            if is_due and is_counted and name not in {"close", "unlink", "ftruncate"}:
                self.failed.append(name)
                code = ERRORS.get(name, errno.EIO)
                raise OSError(code, os.strerror(code))
            return getattr(Quick(), name)(*arguments)

        return call


def newest_epoch(files: Files) -> int:
    manifest = SnapshotStore(files, KEY, job=JOB).newest()
    return 0 if manifest is None else manifest.epoch


@pytest.mark.parametrize("for_good", [False, True])
def test_every_call_may_fail_and_the_epoch_is_the_old_one(
    tmp_path: Path, *, for_good: bool
) -> None:
    """An `OSError` means that nothing was published, and the next epoch succeeds."""
    outcomes = set()
    for at in range(200):
        files = LocalFiles(tmp_path / str(at), kernel=Quick())
        driver = Driver(SnapshotStore(files, KEY, job=JOB, run="run"), "run")
        driver.start()
        driver.commit()
        kernel = Failing(at, for_good=for_good)
        driver.store.files = LocalFiles(files.root, kernel=kernel)
        try:
            driver.commit()
        except OSError:
            outcomes.add("given up")
            assert newest_epoch(files) == 1
        except SnapshotError as error:
            outcomes.add("unknown")
            assert "cannot tell whether epoch 2" in str(error)  # noqa: PT017
            continue
        else:
            outcomes.add("complete")
            assert newest_epoch(files) == 2
        driver.store.files = files
        driver.commit()
        assert newest_epoch(files) == 3
        if not kernel.failed and at >= kernel.calls:
            break
    else:
        pytest.fail("a commit has fewer than 200 calls")
    assert outcomes >= {"given up", "complete"}


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_name_is_spent_after_a_failed_write(tmp_path: Path, call: str) -> None:
    """After a failed fsync the kernel may say that all is well; it is not asked again."""
    kernel = Failing(0, only=call)
    files = LocalFiles(tmp_path, kernel=kernel)

    with pytest.raises(OSError, match=r"\[Errno"):
        files.create("name", [b"content"])

    assert kernel.failed == [call]
    with pytest.raises(FileExistsError):
        files.create("name", [b"content"])
    assert (tmp_path / "name").read_bytes() == b""


def test_short_writes_are_continued(tmp_path: Path) -> None:
    """The kernel may take fewer bytes than it was given."""
    files = LocalFiles(tmp_path, kernel=Stuttering())
    files.create("name", [b"mill", b"", b"stream"])
    assert files.read("name") == b"millstream"


def test_published_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """The key is one of them."""
    files = LocalFiles(tmp_path)
    files.publish("key", b"secret")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "key"]


def test_failed_publication_leaves_no_temporary_file(tmp_path: Path) -> None:
    """Neither one that lost a race."""
    files = LocalFiles(tmp_path)
    files.publish("name", b"first")
    with pytest.raises(FileExistsError):
        files.publish("name", b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


def test_file_system_without_links_is_named(tmp_path: Path) -> None:
    """The sentence says what to use instead."""

    class Linkless(Stuttering):
        def link(self, source: str, target: str, /) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.raises(OSError, match="has no hard links"):
        LocalFiles(tmp_path, kernel=Linkless()).publish("name", b"data")


def test_last_file_takes_its_folder_along_and_the_next_makes_it_anew(
    tmp_path: Path,
) -> None:
    """Folders of epochs do not pile up, and one that vanishes is no error."""
    files, other = LocalFiles(tmp_path), LocalFiles(tmp_path)
    files.create("epochs/1/a", [b"1"])
    other.create("epochs/1/b", [b"1"])
    other.remove("epochs/1/a")
    other.remove("epochs/1/b")
    other.remove("epochs/1/b")
    assert not (tmp_path / "epochs" / "1").exists()

    files.create("epochs/1/c", [b"1"])

    assert files.names("epochs") == ["epochs/1/c"]


def test_folder_that_cannot_be_listed_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a job would start empty where it may not look."""

    def refuse(path: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    files = LocalFiles(tmp_path)
    assert files.names("manifests") == []
    (tmp_path / "manifests").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        files.names("manifests")


def test_directory_may_be_moved(tmp_path: Path) -> None:
    """No file says where it lies."""
    files = LocalFiles(tmp_path / "here")
    driver = Driver(SnapshotStore(files, KEY, job=JOB, run="run"), "run")
    driver.start()
    driver.commit()

    shutil.move(tmp_path / "here", tmp_path / "there")

    assert newest_epoch(LocalFiles(tmp_path / "there")) == 1


def test_working_directory_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means where it was when it was given."""
    monkeypatch.chdir(tmp_path)
    files = LocalFiles("state")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    files.create("name", [b"1"])
    assert (tmp_path / "state" / "name").exists()


def test_drivers_at_the_same_time_get_different_claims(tmp_path: Path) -> None:
    """The file system decides."""
    files = [LocalFiles(tmp_path) for _ in range(8)]
    stores = [SnapshotStore(each, KEY, job=JOB) for each in files]
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(SnapshotStore.claim, stores))
    assert sorted(claims) == list(range(1, 9))


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_store_behind_a_url_keeps_the_promises(store: Store) -> None:
    """Snapshots, claims and collection work there as they do in a directory."""
    files = files_at(store.url)
    driver = Driver(SnapshotStore(files, KEY, job=JOB, run="run"), "run")
    assert driver.start() is None
    manifests = [driver.commit() for _ in range(4)]

    assert SnapshotStore(files_at(store.url), KEY, job=JOB).newest() == manifests[-1]
    assert driver.collect(retain=1) > 0
    names = {ref.name for ref in manifests[-1].files}
    assert {name for name in store.found() if name.startswith("epochs")} == names
    with pytest.raises(FileExistsError):
        files.create(min(names), [b"other"])
    with pytest.raises(FileExistsError):
        files.publish("claims/000001", b"other")
    with pytest.raises(FileNotFoundError):
        files.read("epochs/none")
    files.remove("epochs/none")
    assert files.names("nowhere") == []
    with pytest.raises(SnapshotError, match="leads out"):
        files.read("epochs/../../other")


def test_file_system_without_conditions_looks_and_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half of a published file is ever there under its name."""
    files = RemoteFiles("memory://plain")
    monkeypatch.setattr(files, "_system", LocalFileSystem())
    monkeypatch.setattr(files, "_root", str(tmp_path))

    files.publish("claims/1", b"first")

    with pytest.raises(FileExistsError):
        files.publish("claims/1", b"second")
    assert files.names("claims") == ["claims/1"]
    assert files.read("claims/1") == b"first"


def test_error_of_a_package_becomes_an_os_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An epoch is given up for it, as for a full disk."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            msg = "token expired"
            raise RuntimeError(msg)

    files = RemoteFiles("memory://broken")
    monkeypatch.setattr(files, "_system", Broken())
    with pytest.raises(OSError, match="token expired"):
        files.read("name")


@pytest.mark.parametrize("url", ["nope://bucket/job", "gs://bucket/job"])
def test_url_that_cannot_be_opened_is_a_usage_error(url: str) -> None:
    """The sentence says what to install."""
    with pytest.raises(UsageError, match="cannot open the state directory"):
        files_at(url)


def test_url_of_a_local_file_is_a_directory(tmp_path: Path) -> None:
    """It gets the guarantees of one."""
    files = files_at(f"file://{tmp_path}/with%20space")
    assert isinstance(files, LocalFiles)
    assert files.root == tmp_path / "with space"
