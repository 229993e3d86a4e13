"""What is remembered of a complete snapshot."""

from __future__ import annotations

from millstream.protocol.ids import Epoch
from millstream.protocol.messages import Sealed
from millstream.protocol.snapshot_events import Store
from millstream.runtime.snapshot_stats import Snapshot, snapshot_of


def sealed(epoch: int, length: int, pause_ns: int) -> Sealed:
    file = ("name", length, "digest", ("sum",)) if length else None
    return Sealed(1, 1, epoch, 0, 0, file, (), (), pause_ns, "")


def test_bytes_add_up_and_the_longest_pause_counts() -> None:
    """An epoch that was given up before left files that nobody needs."""
    reports = (sealed(2, 500, 9), sealed(3, 100, 2_000_000), sealed(3, 20, 1))
    store = Store(Epoch(3), Epoch(1), reports, (), frozenset())

    assert snapshot_of(store, 5_000_000) == Snapshot(3, 5.0, 120, 2.0)


def test_last_epoch_has_nobody_who_sealed() -> None:
    """All tasks have ended before it; there is no state to store any more."""
    store = Store(Epoch(1), Epoch(0), (), (), frozenset())

    assert snapshot_of(store, 0) == Snapshot(1, 0.0, 0, 0.0)
