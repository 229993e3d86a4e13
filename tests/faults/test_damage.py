"""Files that are really damaged and workers that are really killed, on plain processes."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.faults import chaos_flow
from tests.faults.chaos import check_output, end_input
from tests.spark.driving import eventually

import millstream as ms
from millstream.errors import SnapshotError
from millstream.state.files import LocalFiles
from millstream.state.key import state_key
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

KEYS = 11
RETAINED = 20
"""An older epoch must still be there when the damage is found."""


def started(flow: ms.Flow, directory: Path) -> ms.Job:
    """Start a flow of ids and wait until it has taken snapshots."""
    job = flow.start(
        on="processes",
        workers=chaos_flow.WORKERS,
        state=directory / "state",
        snapshots_retained=RETAINED,
        **chaos_flow.SETTINGS,
    )
    eventually(lambda: job.epoch >= 3)
    return job


def damaged(state: Path) -> tuple[int, str]:
    """Change a byte of the newest epoch's own state; return its number and the file."""
    files = LocalFiles(state)
    manifest = SnapshotStore(files, state_key(files)).newest()
    assert manifest is not None
    newest = manifest.files[-1]
    assert newest.epoch == manifest.epoch
    path = state / newest.name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return manifest.epoch, newest.name


def test_damaged_snapshot_is_gone_back_behind_without_a_restart(tmp_path: Path) -> None:
    """The driver stays, the older epoch is restored, and every id counts once."""
    chaos_flow.begin(tmp_path)
    flow = ms.Flow("totals")
    counts = flow.read(chaos_flow.Ids(tmp_path)).group_by(lambda i: i % KEYS).count()
    counts.map(lambda pair: f"{pair[0]} {pair[1]}").write_text(tmp_path / "out")
    job = started(flow, tmp_path)

    epoch, name = damaged(tmp_path / "state")
    os.kill(job.worker_pids()[0], signal.SIGKILL)
    eventually(lambda: len(job.recoveries()) > 1 and job.status() == "running")
    ids = end_input(tmp_path)
    job.wait()

    lost, damage, *_ = job.recoveries()
    assert lost.epoch >= epoch
    assert damage.epoch < epoch
    assert name in damage.reason
    lines = [
        line
        for path in (tmp_path / "out").glob("part-*")
        for line in path.read_text().splitlines()
    ]
    expected = Counter(i % KEYS for i in range(ids))
    assert sorted(lines) == sorted(f"{key} {count}" for key, count in expected.items())


def test_damaged_snapshot_whose_output_can_be_seen_ends_the_job(tmp_path: Path) -> None:
    """To go back would write rows again; what is visible stays as it is."""
    chaos_flow.begin(tmp_path)
    flow, _ = chaos_flow.build(tmp_path, roll_every="0s")
    job = started(flow, tmp_path)

    _, name = damaged(tmp_path / "state")
    os.kill(job.worker_pids()[0], signal.SIGKILL)

    with pytest.raises(SnapshotError, match="its output may be visible") as caught:
        job.wait()
    assert name in str(caught.value)
    assert check_output(tmp_path / chaos_flow.OUT) > 0
