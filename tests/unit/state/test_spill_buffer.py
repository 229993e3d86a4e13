"""What waits on disk: order, space given back, and nothing left behind."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.making import operators

import millstream as ms
from millstream.config import Config, configured
from millstream.plan import nodes as specs
from millstream.plan.frames import SortFrame
from millstream.state import spill_buffer
from millstream.state.spill_buffer import SpillBuffer, SpillFile, SpillQueue

if TYPE_CHECKING:
    from pathlib import Path

FRAMES = [pl.DataFrame({"x": [i, None], "s": ["ü" * i, ""]}) for i in range(5)]


@given(st.lists(st.binary(max_size=50)))
def test_pieces_of_a_file_are_what_was_written(written: list[bytes]) -> None:
    """In any order, and as often as one likes."""
    file = SpillFile()
    pieces = [file.append(data) for data in written]

    for _ in range(2):
        assert [piece.read() for piece in reversed(pieces)] == written[::-1]


def test_bytes_that_the_system_takes_in_parts_are_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it does with two gigabytes, and when a disk is nearly full."""
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda n, d, at: pwrite(n, bytes(d[:3]), at))
    monkeypatch.setattr(os, "pread", lambda n, count, at: pread(n, min(2, count), at))
    file = SpillFile()
    first, second = file.append(b"millstream"), file.append(b"flow")

    assert (first.read(), second.read()) == (b"millstream", b"flow")


@given(
    steps=st.lists(st.lists(st.integers(), max_size=3) | st.sampled_from("ptc")),
    memory_bytes=st.sampled_from([0, 8, 1000]),
)
def test_queue_is_a_deque_wherever_its_batches_wait(
    steps: list[Any], memory_bytes: int
) -> None:
    """And all that it counts comes to nothing when it is empty."""
    queue, expected = SpillQueue(memory_bytes), deque[list[int]]()
    for step in steps:
        if step == "c":
            queue.clear()
            expected.clear()
        elif isinstance(step, list):
            queue.append(step)
            expected.append(step)
        elif expected:
            assert queue.popleft() == expected.popleft()
        assert len(queue) == len(expected)
        assert list(queue) == list(expected)
    while expected:
        assert queue.popleft() == expected.popleft()

    assert queue.disk_bytes == queue._buffer.nbytes == 0
    with pytest.raises(IndexError):
        queue.popleft()


@pytest.mark.parametrize("memory_bytes", [1, 50, 10**6])
def test_queue_takes_frames_and_goes_back_to_memory(memory_bytes: int) -> None:
    """Once those on disk are read; the schema is theirs, also without rows."""
    queue = SpillQueue(memory_bytes)
    read = []
    for frame in FRAMES:
        queue.append(frame)
        queue.append(frame.clear())
        read.append(queue.popleft())
    was_on_disk = queue.disk_bytes > 0
    read += [queue.popleft() for _ in range(len(queue))]

    assert was_on_disk is (memory_bytes < 100)
    assert queue.disk_bytes == 0
    assert pl.concat(read).equals(pl.concat(FRAMES))


def test_much_on_disk_is_in_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may not open as many as it likes."""
    monkeypatch.setattr(spill_buffer, "_FILE_BYTES", 100)
    buffer = SpillBuffer(0)

    kept = [buffer.put(["x" * 50]) for _ in range(4_000)]

    files = {each.file.file.number for each in kept if each.file is not None}
    assert buffer.disk_bytes > 2_000 * spill_buffer._FILE_BYTES
    assert len(files) < 120


def test_space_is_given_back_with_the_last_piece() -> None:
    """However that comes about: read, cleared, or a task that failed."""
    queue = SpillQueue(0)
    for frame in FRAMES:
        queue.append(frame)
    numbers = {kept.file.file.number for kept in queue._kept if kept.file is not None}
    queue.clear()
    queue.clear()

    assert numbers
    for number in numbers:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)


@pytest.mark.parametrize("kind", ["rows", "frames"])
def test_no_file_has_a_name_while_a_sort_uses_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nothing is left behind, whether the task ends, fails or is killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = configured(Config(), {"sort_memory_bytes": 1, "sort_memory_rows": 1})
    frames = SortFrame(("x",), (False,), (False,))
    rows = specs.SortBy(lambda row: row["s"])
    (operator,) = operators([frames if kind == "frames" else rows], config)
    sort: Any = operator
    for frame in FRAMES:
        sort.process(frame if kind == "frames" else frame.to_dicts())

    assert list(tmp_path.iterdir()) == []
    assert sum(len(batch) for batch in sort.finish()) == 10


def test_sort_that_fails_behind_its_runs_fails_the_job_with_the_cause() -> None:
    """What comes after the sort is the user's."""
    flow = ms.Flow("failing")
    numbers = flow.from_frame(pl.DataFrame({"x": range(1000)}))

    def fail(batch: pl.DataFrame) -> pl.DataFrame:
        raise ValueError(str(batch["x"][0]))

    numbers.sort("x", descending=True).map_batches(fail).collect()

    with pytest.raises(ms.OperatorError, match="999"):
        flow.run(on="local", workers=2, sort_memory_bytes=500)
