"""The snapshot store: every check that its broken variants fail, and its manners."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.snapshot_checks import CHECKS, Subject
from tests.support.snapshots import JOB, KEY, Driver, MemoryFiles

from millstream.errors import LocalProtocolError, SnapshotError
from millstream.state.base import ALL_SHARDS, Segment, SegmentKind
from millstream.state.layout import ManifestId, state_name
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@pytest.mark.parametrize("check", CHECKS)
def test_store_passes_the_check(check: str, tmp_path: Path) -> None:
    """Each check is described where it is written."""
    CHECKS[check](Subject(), tmp_path)


def started(files: MemoryFiles, run: str = "run") -> Driver:
    return Subject().started(files, run)


def test_manifest_needs_a_claim_and_an_origin() -> None:
    """A driver that has not said where it goes on from could not be fenced off."""
    files = MemoryFiles()
    driver = Subject().opened(files)
    driver.epoch = 1
    manifest = driver.manifest([driver.seal(0)])
    with pytest.raises(LocalProtocolError, match="taken a claim"):
        driver.store.write_manifest(manifest)
    driver.claim = driver.store.claim()
    with pytest.raises(LocalProtocolError, match="origin None"):
        driver.store.write_manifest(replace(manifest, claim=driver.claim))
    assert files.names("manifests") == []


def test_epoch_follows_the_last_one() -> None:
    """Epochs go up, also over a restart."""
    files = MemoryFiles()
    started(files).commit()
    driver = started(files, "again")
    driver.epoch = 0
    with pytest.raises(LocalProtocolError, match="epoch 1 cannot follow epoch 1"):
        driver.commit()


def test_superseded_driver_is_told_who_won() -> None:
    """It stops before it writes anything."""
    files = MemoryFiles()
    old = started(files)
    started(files, "again")
    with pytest.raises(SnapshotError, match=r"another driver .* \(claim 1\) stops"):
        old.commit()
    with pytest.raises(SnapshotError, match="another driver"):
        old.collect(retain=1)
    assert not old.store.is_current(old.claim)
    assert files.names("manifests") == []


def test_driver_takes_the_next_claim_only_from_itself() -> None:
    """It falls back behind damage as a successor would, and no successor is ousted."""
    files = MemoryFiles()
    driver = started(files)
    driver.commit()
    files.remove(driver.commit().files[-1].name)

    assert driver.start() is not None
    assert (driver.claim, driver.epoch) == (2, 1)
    assert [each.epoch for each in driver.store.forks()] == [2]
    started(files, "again")
    with pytest.raises(SnapshotError, match=r"another driver .* \(claim 2\) stops"):
        driver.start()


def test_manifest_that_a_driver_goes_on_from_is_damaged_if_it_is_gone() -> None:
    """Somebody may go back behind it by removing it, but not while the job runs."""
    files = MemoryFiles()
    driver = started(files)
    driver.commit()
    newest = driver.commit()
    name = ManifestId(newest.claim, newest.epoch).name
    files.remove(name)

    manifest = driver.store.newest()

    assert manifest is not None
    assert manifest.epoch == 1
    assert driver.store.damage == [f"epoch 2: {name} is missing"]
    assert driver.store.passed_over == [(ManifestId(1, 2), None)]


def test_file_that_cannot_be_read_now_is_not_damage() -> None:
    """An older epoch would be wrong: its successor has been committed."""

    class Unreadable(MemoryFiles):
        def read(self, name: str, bytes_max: int | None = None) -> bytes:
            if name.startswith("epochs/00000002"):
                raise PermissionError(errno.EACCES, "Permission denied")
            return super().read(name, bytes_max)

    files = MemoryFiles()
    driver = started(files)
    driver.commit()
    driver.commit()
    with pytest.raises(SnapshotError, match="make it readable"):
        SnapshotStore(Unreadable(files.content), KEY, job=JOB).newest()


def test_manifest_that_arrived_twice_is_published() -> None:
    """A store may lose the answer to a put, and the package tries again."""

    class Retrying(MemoryFiles):
        def publish(self, name: str, data: bytes) -> None:
            super().publish(name, data)
            super().publish(name, data)

    files = MemoryFiles()
    driver = started(files)
    driver.store.files = Retrying()
    driver.store.files.content = files.content
    driver.commit()
    assert Subject().newest(files) == (1, [])


def test_manifest_that_may_have_appeared_is_withdrawn() -> None:
    """An error means that the epoch is not there, so that it can be given up."""

    class Unsure(MemoryFiles):
        def publish(self, name: str, data: bytes) -> None:
            super().publish(name, data)
            raise OSError(errno.EIO, "timed out")

    files = MemoryFiles()
    driver = started(files)
    driver.store.files = Unsure()
    driver.store.files.content = files.content
    with pytest.raises(OSError, match="timed out"):
        driver.commit()
    assert len(files.names("epochs")) == 2
    assert Subject().newest(files) == (0, [])


def test_manifest_under_the_name_of_another_is_damage() -> None:
    """A copy must not pass for a newer epoch."""
    files = MemoryFiles()
    driver = started(files)
    names = [ManifestId(1, driver.commit().epoch).name for _ in range(2)]
    files.content[names[1]] = files.content[names[0]]
    epoch, damage = Subject().newest(files)
    assert epoch == 1
    assert "is the manifest of epoch 1" in damage[0]


def test_state_file_must_be_named_as_one() -> None:
    """Else no manifest could list it, and no collection would find it."""
    store = SnapshotStore(MemoryFiles(), KEY, job=JOB)
    with pytest.raises(LocalProtocolError, match="no name of a state file"):
        store.write_state("manifests/x", [])


def test_state_file_is_written_as_it_is_made() -> None:
    """A large state is never in memory as a whole."""
    seen: list[str] = []

    class Streaming(MemoryFiles):
        def create(self, name: str, chunks: Iterable[bytes]) -> None:
            seen.extend("written" for _ in chunks)

    def made() -> Iterator[Segment]:
        for task in range(3):
            seen.append("made")
            yield Segment("sum", task, SegmentKind.TASK, ALL_SHARDS, b"x")

    name = state_name(1, "run", worker=1, stage=0, task=0, generation=1)
    SnapshotStore(Streaming(), KEY).write_state(name, made())
    assert seen == ["written", *["made", "written"] * 3]


def test_leftovers_of_publications_are_collected() -> None:
    """A driver that died between two calls leaves a temporary file."""
    files = MemoryFiles()
    driver = started(files)
    driver.commit()
    leftovers = {"manifests/00000001-000001.manifest.ab.tmp", "claims/000001.ab.tmp"}
    files.content |= dict.fromkeys(leftovers, b"half")
    driver.collect(retain=1)
    assert not leftovers & set(files.content)


def test_one_collection_does_a_bounded_amount_of_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one goes on, and a manifest never loses its files before it goes."""
    monkeypatch.setattr("millstream.state.store.GARBAGE_FILES_MAX", 3)
    files = MemoryFiles()
    driver = started(files)
    for _ in range(7):
        driver.commit()
    while (removed := driver.collect(retain=1)) > 0:
        assert removed <= 3
        for each in driver.store.manifests():
            assert driver.store.inspect(each)[1] == []
    assert [each.epoch for each in driver.store.manifests()] == [7]


def test_fork_is_listed_as_one() -> None:
    """People should learn why it is not used."""
    files = MemoryFiles()
    old = started(files)
    old.commit()
    fork = ManifestId(1, old.commit().epoch)
    data = files.content.pop(fork.name)
    new = started(files, "again")
    files.content[fork.name] = data
    assert new.store.forks() == [fork]


def test_ten_thousand_flipped_bits_are_all_found_before_anything_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Payloads are unpickled, so a changed one must never get that far."""
    files = MemoryFiles()
    driver = started(files)
    ref = driver.commit().files[0]
    sound = files.content[ref.name]
    parsed: list[bytes] = []
    monkeypatch.setattr("millstream.state.store.decoded_segments", parsed.append)
    chance = random.Random(7)
    for _ in range(10_000):
        damaged = bytearray(sound)
        damaged[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        files.content[ref.name] = bytes(damaged)
        with pytest.raises(SnapshotError, match="was changed after"):
            driver.store.read_segments(ref)
    assert parsed == []
