"""A disk that is really full: epochs are given up, and the job goes on when it is not."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support.snapshots import JOB, KEY, Driver

from millstream.state.base import ALL_SHARDS, Segment, SegmentKind
from millstream.state.files import LocalFiles
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root"),
]


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system with the options that the test asks for."""
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(tmp_path)]
    subprocess.run(mount, check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


class LargeDriver(Driver):
    """Captures more than the disk has room for after a few epochs."""

    def segments(self, task: int) -> list[Segment]:
        payload = os.urandom(20_000)
        return [Segment("count", task, SegmentKind.TASK, ALL_SHARDS, payload)] * 2


def filled(driver: Driver) -> int:
    """Commit until the disk is full; return the number of epochs."""
    for count in range(1000):
        try:
            driver.commit()
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - ends the loop
            return count
    pytest.fail("the disk never fills up")


@pytest.mark.parametrize("disk", ["size=512k", "nr_inodes=32"], indirect=True)
def test_full_disk_costs_epochs_but_no_snapshot(disk: Path) -> None:
    """The newest epoch stays whole, and the next one succeeds when there is room."""
    files = LocalFiles(disk / "state")
    driver = LargeDriver(SnapshotStore(files, KEY, job=JOB, run="run"), "run")
    driver.start()
    count = filled(driver)
    assert count >= 1
    for _ in range(20):
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            driver.commit()

    store = SnapshotStore(LocalFiles(disk / "state"), KEY, job=JOB)
    newest = store.newest()
    assert newest is not None
    assert newest.epoch == count
    assert store.damage == []

    driver.collect(retain=1)
    driver.epoch = 3 * driver.epoch  # a base, which needs nothing of what came before
    driver.commit()
    assert store.newest() == driver.last
