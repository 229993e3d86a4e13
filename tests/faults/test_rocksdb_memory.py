"""RocksDB in a job that runs for weeks: its memory comes to a plateau.

Method: keys come, are stored with every epoch and go, as windows do.  What RocksDB may use
is passed on many times over; once that much was written, the process grows no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from millstream.protocol.ids import Epoch
from millstream.state.rocks import RocksTable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

MIB = 1 << 20
MEMORY_BYTES = 8 * MIB
KEYS, VALUE = 200, "v" * 1_000
LIVES = 4
"""Epochs after which a key goes."""


def test_memory_of_rocksdb_comes_to_a_plateau(tmp_path: Path) -> None:
    """Write buffers and blocks have one limit, however much has passed through."""
    table = RocksTable(
        1024, str(tmp_path), cache_entries=100, memory_bytes=MEMORY_BYTES
    )
    process = psutil.Process()

    def pass_through(epochs: range) -> None:
        for epoch in epochs:
            keys = range(epoch * KEYS, (epoch + 1) * KEYS)
            table.touch(keys).update((key, (VALUE, key)) for key in keys)
            for key in range((epoch - LIVES) * KEYS, (epoch - LIVES + 1) * KEYS):
                table.pop(key, None)
            capture = table.capture(Epoch(epoch), Epoch(epoch - 1))
            for _ in capture.segments("windows", 0):
                pass
            table.complete(Epoch(epoch))

    try:
        pass_through(range(1, 200))
        before = process.memory_info().rss
        pass_through(range(200, 800))
        grown = process.memory_info().rss - before
    finally:
        table.close()

    written = 600 * KEYS * len(VALUE)
    assert written > 10 * MEMORY_BYTES
    assert grown < MEMORY_BYTES
