"""A savepoint: a snapshot that depends on nothing but itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.snapshots import JOB, KEY, Driver, MemoryFiles

from millstream.errors import SnapshotError
from millstream.state.key import state_key
from millstream.state.savepoint import copy_snapshot
from millstream.state.store import SnapshotStore


def committed(files: MemoryFiles) -> Driver:
    driver = Driver(SnapshotStore(files, KEY, job=JOB, run="run"), "run")
    driver.start()
    for _ in range(3):
        driver.commit()
    return driver


def test_copy_outlives_the_original() -> None:
    """It can be restored and gone on from when the original is gone."""
    original, target = MemoryFiles(), MemoryFiles()
    driver = committed(original)
    assert driver.last is not None
    copy_snapshot(driver.store, driver.last, target)
    content = {ref: driver.store.read_segments(ref) for ref in driver.last.files}
    original.content.clear()

    key = state_key(target)
    resumed = Driver(SnapshotStore(target, key, job=JOB, run="later"), "later")
    manifest = resumed.start()

    assert key != KEY
    assert manifest == driver.last
    assert {ref: resumed.store.read_segments(ref) for ref in manifest.files} == content
    resumed.commit()
    assert resumed.epoch == 4


def test_damaged_file_is_not_copied() -> None:
    """A savepoint that says it is complete is complete."""
    original, target = MemoryFiles(), MemoryFiles()
    driver = committed(original)
    assert driver.last is not None
    original.content[driver.last.files[-1].name] += b"x"
    with pytest.raises(SnapshotError, match="more bytes than"):
        copy_snapshot(driver.store, driver.last, target)
    assert target.names("manifests") == []


def test_directory_with_snapshots_is_refused() -> None:
    """Two snapshots in one place would be a history."""
    driver = committed(MemoryFiles())
    assert driver.last is not None
    target = MemoryFiles()
    copy_snapshot(driver.store, driver.last, target)
    with pytest.raises(SnapshotError, match="holds snapshots already"):
        copy_snapshot(driver.store, replace(driver.last, epoch=9), target)
