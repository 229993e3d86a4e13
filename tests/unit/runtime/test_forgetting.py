"""What sources may forget: only what every snapshot that is kept is behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import millstream as ms
from millstream.protocol.ids import Epoch
from millstream.runtime.forgetting import Offsets, collect_garbage, least_offsets
from millstream.state.files import files_at
from millstream.state.key import state_key
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.state.manifest import Manifest


def taken(tmp_path: Path) -> Manifest:
    """Return a manifest as a job makes it."""
    flow = ms.Flow("taken")
    flow.from_iterable([1]).collect()
    flow.run(on="local", state=tmp_path)
    newest = store_at(tmp_path).newest()
    assert newest is not None
    return newest


def store_at(path: Path) -> SnapshotStore:
    files = files_at(str(path))
    return SnapshotStore(files, state_key(files), run="run")


def test_the_oldest_snapshot_decides_split_by_split(tmp_path: Path) -> None:
    """A split that one of them has not begun may be read from its beginning."""
    manifest = taken(tmp_path)
    newer = {"s": {"a": (9, True), "b": (7, False), "c": (5, False)}}
    older = {"s": {"a": (4, False), "b": (8, True)}}

    least = least_offsets(
        [replace(manifest, offsets=newer), replace(manifest, offsets=older)]
    )

    assert least == {"s": {"a": 4, "b": 7, "c": 0}}


def test_nothing_is_forgotten_while_a_snapshot_cannot_be_read(tmp_path: Path) -> None:
    """Nobody knows what it needs; the job goes on."""
    taken(tmp_path)
    store, told = store_at(tmp_path), list[Offsets]()
    store.claim()
    store.adopt(store.newest())
    (manifest,) = (tmp_path / "manifests").iterdir()
    whole = manifest.read_bytes()

    manifest.write_bytes(whole[:-1])
    collect_garbage(store, told.append, 3, oldest_open=Epoch(1))
    assert told == []

    manifest.write_bytes(whole)
    collect_garbage(store, told.append, 3, oldest_open=Epoch(1))
    assert told == [{"from_iterable": {"iterable": None}}]
