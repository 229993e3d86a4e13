"""Cuts come first: work in the background waits for them between its pieces."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from millstream.protocol.ids import Epoch
from millstream.state.table import MemoryTable
from millstream.state.turns import collecting_no_garbage, give_way, undisturbed

PATIENCE_S = 30


def test_work_in_the_background_waits_for_a_cut() -> None:
    """A base is encoded between two cuts, not during one."""
    table = MemoryTable(shard_count=64)
    table.touch(range(1000)).update(dict.fromkeys(range(1000), 1))
    capture = table.capture(Epoch(1), since=Epoch(0))
    encoded: list[object] = []
    worker = threading.Thread(
        target=lambda: encoded.extend(capture.segments("count", 0))
    )

    with undisturbed():
        worker.start()
        worker.join(0.05)
        assert encoded == []
    worker.join(PATIENCE_S)

    assert len(encoded) > 1


def test_thread_that_cuts_does_not_wait_for_itself() -> None:
    """Where nothing runs beside the tasks, they store what they cut."""
    with undisturbed():
        give_way()


def test_cut_that_raises_is_over() -> None:
    """Nobody waits for it."""

    def cut() -> None:
        with undisturbed():
            raise KeyError

    with pytest.raises(KeyError):
        cut()
    waiting = threading.Thread(target=give_way)
    waiting.start()
    waiting.join(PATIENCE_S)

    assert not waiting.is_alive()


def test_switch_interval_is_left_alone() -> None:
    """Regression: a thread that waited already got its turn, and kept it for a second."""
    before_s = sys.getswitchinterval()
    with undisturbed():
        assert sys.getswitchinterval() == before_s


def test_collector_is_on_again_afterwards() -> None:
    """As it was before."""
    with collecting_no_garbage():
        assert not gc.isenabled()
    assert gc.isenabled()
