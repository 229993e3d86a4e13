"""Batches that one thread stores while another one works with them."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import threading
import polars as pl
from millstream.state.batches import arrow_bytes
from millstream.state.frame_codec import encode_frame
from millstream.state.spill_buffer import SpillQueue

frame = pl.DataFrame({{"x": range(1_000)}})
queue = SpillQueue(0)

def store() -> None:
    for _ in range(500):
        {store}

thread = threading.Thread(target=store, daemon=True)
thread.start()
while thread.is_alive():
    assert frame.height == 1_000
"""


@pytest.mark.parametrize(
    "store",
    ["arrow_bytes(frame)", "encode_frame(frame, ['x'])", "queue.append(frame)"],
)
def test_frame_may_be_looked_at_while_another_thread_stores_it(store: str) -> None:
    """Polars locks what it writes, and whoever looked at it would wait for ever."""
    program = PROGRAM.format(store=store)

    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
