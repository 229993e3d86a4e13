"""What must hold for the snapshot store, as checks that a broken store fails.

Each check takes a `Subject`: the classes to test and how a driver uses them.
``tests/unit/state/test_store.py`` runs them on the real ones,
``tests/unit/state/test_store_mutations.py`` on ones that were broken on purpose.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.crashes import Recorder, crash_states
from tests.support.snapshots import JOB, KEY, Driver, InterruptedFiles, MemoryFiles

from millstream.errors import SnapshotError
from millstream.protocol.ids import Epoch
from millstream.state.files import Kernel, LocalFiles
from millstream.state.layout import ManifestId
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.ports import Files
    from millstream.state.manifest import Manifest

__all__ = ["CHECKS", "Subject"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tested."""

    files: type[LocalFiles] = LocalFiles
    store: type[SnapshotStore] = SnapshotStore
    driver: type[Driver] = Driver
    memory: type[MemoryFiles] = MemoryFiles

    def opened(self, files: Files, run: str = "first") -> Driver:
        """Return a driver that has not started."""
        return self.driver(self.store(files, KEY, job=JOB, run=run), run)

    def started(self, files: Files, run: str = "first") -> Driver:
        """Return a driver that has taken its claim and gone on from what is there."""
        driver = self.opened(files, run)
        driver.start()
        return driver

    def newest(self, files: Files) -> tuple[int, list[str]]:
        """Return the epoch that a restart would go on from, and what it would say."""
        store = self.store(files, KEY, job=JOB)
        manifest = store.newest()
        return (0 if manifest is None else manifest.epoch), store.damage

    def recorded(self, root: Path, kernel: Kernel = os) -> LocalFiles:
        """Return files in a real directory."""
        return self.files(root, kernel=kernel)


def crash_leaves_old_or_new(subject: Subject, place: Path) -> None:
    """Check: a commit cut off anywhere leaves the epoch before it or the whole new one."""
    for old in range(3):
        root = place / str(old)
        files = subject.recorded(root)
        first = subject.started(files)
        for _ in range(old):
            first.commit()
        before = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }
        recorder = Recorder(root)
        driver = subject.opened(subject.recorded(root, recorder), "second")
        driver.start()
        started = len(recorder.steps)
        driver.commit()
        ended = len(recorder.steps)

        seen = set()
        for state in crash_states(root, before, recorder.steps):
            try:
                epoch, damage = subject.newest(MemoryFiles(state.content))
            except SnapshotError as error:
                pytest.fail(f"after {state.steps} steps: {error}")
            seen.add(epoch)
            assert damage == []
            assert epoch in {old, old + 1}
            assert epoch == old or state.steps > started
            assert epoch == old + 1 or state.steps < ended
        assert seen == {old, old + 1}


def crash_during_collection_keeps_manifests_whole(
    subject: Subject, place: Path
) -> None:
    """Whatever manifest a cut-off collection leaves, all its files are there."""
    root = place / "state"
    driver = subject.started(subject.recorded(root))
    for _ in range(4):
        driver.commit()
    before = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }
    recorder = Recorder(root)
    driver.store.files = subject.recorded(root, recorder)
    assert driver.collect(retain=1) > 0
    for state in crash_states(root, before, recorder.steps):
        store = subject.store(MemoryFiles(state.content), KEY, job=JOB)
        problems = [store.inspect(each)[1] for each in store.manifests()]
        assert problems[0] == []
        assert not any(problems)


def damage_is_found_and_said(subject: Subject, place: Path) -> None:
    """Check: whatever byte, length or name is wrong, an older epoch is used and it is said."""
    files = subject.memory()
    driver = subject.started(files)
    second, third = [driver.commit() for _ in range(3)][1:]
    content = files.content
    manifest = ManifestId(third.claim, third.epoch).name
    own = sorted({ref.name for ref in third.files} - {ref.name for ref in second.files})
    chance = random.Random(4)

    def expect_older(name: str, data: bytes | None) -> None:
        damaged = {**content, name: data or b""}
        if data is None:
            del damaged[name]
        epoch, damage = subject.newest(MemoryFiles(damaged))
        assert epoch == 2, name
        assert [text for text in damage if name in text and "epoch 3" in text]

    for name in [manifest, *own]:
        data = content[name]
        all_bytes = range(len(data))
        spots = all_bytes if name == manifest else chance.sample(all_bytes, 200)
        for spot in spots:
            flip = 1 << chance.randrange(8)
            changed = data[:spot] + bytes([data[spot] ^ flip]) + data[spot + 1 :]
            expect_older(name, changed)
        for length in {0, 1, 13, 14, len(data) // 2, len(data) - 1}:
            expect_older(name, data[:length])
        expect_older(name, data + b"\0")
    for name in own:
        expect_older(name, None)
    swapped = content[own[1]] if len(own) > 1 else b""
    expect_older(own[0], swapped)


def nothing_usable_is_an_error(subject: Subject, place: Path) -> None:
    """Check: a job never starts empty because its state cannot be used."""
    files = subject.memory()
    driver = subject.started(files)
    shared = driver.commit().files[0].name
    driver.commit()
    del files.content[shared]
    with pytest.raises(SnapshotError, match="none of the 2 snapshots"):
        subject.newest(files)


def foreign_directory_is_refused(subject: Subject, place: Path) -> None:
    """Check: a directory of another job, or under another key, is neither read nor claimed."""
    files = subject.memory()
    subject.started(files).commit()
    before = dict(files.content)
    for key, job in ((KEY, "another"), (KEY[::-1], JOB)):
        for use in (SnapshotStore.claim, SnapshotStore.newest):
            with pytest.raises(SnapshotError):
                use(subject.store(files, key, job=job))
    assert files.content == before


def name_is_used_once(subject: Subject, place: Path) -> None:
    """Check: neither a file nor a manifest is ever written over."""
    files = subject.recorded(place / "names")
    files.create("epochs/00000001/a-1.state", [b"first"])
    files.publish("manifests/m", b"first")
    with pytest.raises(FileExistsError):
        files.create("epochs/00000001/a-1.state", [b"second"])
    with pytest.raises(FileExistsError):
        files.publish("manifests/m", b"second")
    assert files.read("epochs/00000001/a-1.state") == b"first"
    assert files.read("manifests/m") == b"first"


def name_stays_below_the_root(subject: Subject, place: Path) -> None:
    """Check: nothing outside the directory is read, written or removed, whatever a name says."""
    (place / "secret").write_text("keep")
    root = place / "inside"
    files = subject.recorded(root)
    files.create("epochs/a", [b"1"])
    (root / "way").symlink_to(place)
    (root / "epochs" / "file").symlink_to(place / "secret")
    names = ["../secret", str(place / "secret"), "way/secret", "epochs/file"]
    names += ["epochs/../../secret", "./epochs/a", "epochs//a", "epochs/\0", ""]
    for name in names:
        with pytest.raises((SnapshotError, FileNotFoundError), match="leads out"):
            files.read(name)
        with pytest.raises(SnapshotError, match="leads out"):
            files.remove(name)
        with suppress(SnapshotError):
            assert files.names(name) == []
        for write in (files.create, files.publish):
            with pytest.raises(SnapshotError, match="leads out"):
                write(name, [b"2"])  # type: ignore[arg-type]  # never gets there
    assert (place / "secret").read_text() == "keep"


def claim_has_one_owner(subject: Subject, place: Path) -> None:
    """Check: of two drivers that want the same number at the same time one gets another."""
    inner = subject.memory()
    for at in range(8):
        rival = subject.opened(inner, "rival")
        files = InterruptedFiles(inner, at, rival.store.claim)
        claims = [subject.opened(files).store.claim(), rival.store._claim]
        assert claims[0] != claims[1], at


def superseded_driver_changes_nothing(subject: Subject, place: Path) -> None:
    """Check: a successor that starts at any moment of a commit sees it, or it fails."""
    moments = 0
    for at in range(40):
        inner = subject.memory()
        successor = subject.opened(inner, "second")
        files = InterruptedFiles(inner, at, successor.start)
        old = subject.started(inner)
        old.commit()
        old.store.files = files
        wrote = _wrote(old)
        if successor.claim == 0:
            break
        moments += 1
        assert not wrote or (successor.last and successor.last.epoch == 2)
        _check_fork_is_ignored(subject, inner, successor)
    assert moments >= 6


def late_manifest_is_a_fork(subject: Subject, place: Path) -> None:
    """Check: what an old driver publishes while or after its successor starts is not mixed in."""
    for at in range(40):
        inner = subject.memory()
        old = subject.started(inner)
        old.commit()
        wrote: list[bool] = []
        commit = partial(_note_commit, old, wrote)
        successor = subject.started(InterruptedFiles(inner, at, commit), "second")
        if not wrote:
            break
        is_seen = successor.last is not None and successor.last.epoch == 2
        assert is_seen or not wrote[0]
        _check_fork_is_ignored(subject, inner, successor)
    else:
        pytest.fail("a start has fewer than 40 calls")


def _note_commit(driver: Driver, wrote: list[bool]) -> None:
    wrote.append(_wrote(driver))


def _wrote(driver: Driver) -> bool:
    """Commit without asking first whether the driver is still current."""
    driver.epoch += 1
    manifest = driver.manifest([driver.seal(task) for task in range(2)])
    try:
        driver.store.write_manifest(manifest)
    except SnapshotError:
        return False
    return True


def _check_fork_is_ignored(
    subject: Subject, inner: MemoryFiles, successor: Driver
) -> None:
    """Whatever the predecessor left, later drivers go on from the successor's epochs."""
    base = 0 if successor.last is None else successor.last.epoch
    third = subject.started(inner, "third")
    assert third.epoch == base
    newest = third.commit()
    assert subject.newest(inner) == (newest.epoch, [])
    manifest = ManifestId(newest.claim, newest.epoch).name
    inner.content[manifest] = b"damaged"
    assert subject.newest(inner)[0] == base


def stale_manifest_of_a_fork_is_ignored(subject: Subject, place: Path) -> None:
    """Check: an old driver's manifest is a fork, however high its epoch and whatever is lost."""
    files = subject.memory()
    old = subject.started(files)
    origin = old.commit()
    forks = {_name(old.commit()) for _ in range(3)}
    late = {name: files.content.pop(name) for name in forks}
    successor = subject.started(files, "second")
    newest = successor.commit()
    files.content |= late
    assert subject.newest(files) == (newest.epoch, [])
    files.content[ManifestId(newest.claim, newest.epoch).name] = b""
    assert subject.newest(files)[0] == origin.epoch


def collection_keeps_what_is_needed(subject: Subject, place: Path) -> None:
    """Check: files of retained manifests and of open attempts stay, all others go."""
    files = subject.memory()
    first = subject.started(files)
    manifests = [first.commit() for _ in range(2)]
    first.epoch += 1
    first.seal(0)
    second = subject.started(files, "second")
    manifests += [second.commit() for _ in range(2)]
    second.epoch += 1
    aborted = second.seal(0).name
    second.epoch += 1
    second.store.collect_garbage(2, oldest_open=Epoch(second.epoch))
    open_ref = second.seal(1)
    assert aborted not in files.content
    second.store.collect_garbage(2, oldest_open=Epoch(second.epoch))
    kept = manifests[-2:]
    expected = {ref.name for each in kept for ref in each.references()}
    assert set(files.names("epochs")) == expected | {open_ref.name}
    assert set(files.names("manifests")) == {_name(each) for each in kept}
    assert subject.newest(files) == (kept[-1].epoch, [])


def collection_keeps_what_the_next_epoch_builds_on(
    subject: Subject, place: Path
) -> None:
    """Check: a manifest that rots under a running driver costs its own epoch only."""
    files = subject.memory()
    driver = subject.started(files)
    manifests = [driver.commit() for _ in range(4)]
    files.content[_name(manifests[-1])] = b"rotten"
    driver.collect(retain=1)
    assert subject.newest(files)[0] == 3
    driver.commit()
    assert subject.newest(files) == (5, [])


def forged_notes_change_nothing(subject: Subject, place: Path) -> None:
    """Check: whoever has no key moves no job, whatever names they make."""
    files = subject.memory()
    driver = subject.started(files)
    for _ in range(3):
        driver.commit()
    files.content["claims/000002-00000001-000001"] = b""
    assert subject.newest(files) == (3, [])
    driver.commit()


def foreign_snapshots_do_not_count(subject: Subject, place: Path) -> None:
    """Check: what was written for another directory under the same key is damage."""
    files, other = subject.memory(), subject.memory()
    subject.started(files).commit()
    driver = subject.started(other)
    for _ in range(3):
        driver.commit()
    files.content = other.content | files.content
    epoch, damage = subject.newest(files)
    assert epoch == 1
    assert len(damage) == 2


def _name(manifest: Manifest) -> str:
    return ManifestId(manifest.claim, manifest.epoch).name


CHECKS: dict[str, Callable[[Subject, Path], None]] = {
    check.__name__: check
    for check in (
        crash_leaves_old_or_new,
        crash_during_collection_keeps_manifests_whole,
        damage_is_found_and_said,
        nothing_usable_is_an_error,
        foreign_directory_is_refused,
        name_is_used_once,
        name_stays_below_the_root,
        claim_has_one_owner,
        superseded_driver_changes_nothing,
        late_manifest_is_a_fork,
        stale_manifest_of_a_fork_is_ignored,
        collection_keeps_what_is_needed,
        collection_keeps_what_the_next_epoch_builds_on,
        forged_notes_change_nothing,
        foreign_snapshots_do_not_count,
    )
}
