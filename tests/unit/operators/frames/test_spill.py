"""Frames that wait on disk: order, space given back, and nothing left behind."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.making import operators

import millstream as ms
from millstream.config import Config, configured
from millstream.operators.frames.spill import FrameFile, FrameQueue
from millstream.plan.frames import SortFrame

if TYPE_CHECKING:
    from pathlib import Path

FRAMES = [pl.DataFrame({"x": [i, None], "s": ["ü" * i, ""]}) for i in range(5)]


def test_frames_come_back_in_order_while_others_are_written() -> None:
    """Schema included; beyond the last frame there is none."""
    file = FrameFile()
    file.append(FRAMES[0])
    file.append(FRAMES[1].clear())
    first = file.popleft()
    file.append(FRAMES[2])

    assert first.equals(FRAMES[0])
    assert len(file) == 2
    assert [frame.height for frame in file] == [0, 2]
    with pytest.raises(IndexError, match="beyond its last frame"):
        file.popleft()


@pytest.mark.parametrize("memory_bytes", [1, 50, 10**6])
def test_queue_is_a_queue_wherever_its_frames_wait(memory_bytes: int) -> None:
    """And it goes back to memory once the file is empty."""
    queue = FrameQueue(memory_bytes)
    read = []
    for frame in FRAMES:
        queue.append(frame)
        queue.append(frame)
        read.append(queue.popleft())
    was_on_disk = queue.is_on_disk
    read += [queue.popleft() for _ in range(len(queue))]

    assert was_on_disk is (memory_bytes < 1000)
    assert not queue.is_on_disk
    assert pl.concat(read).equals(pl.concat([f for f in FRAMES for _ in range(2)]))
    with pytest.raises(IndexError, match="beyond its last frame"):
        queue.popleft()


def test_no_file_has_a_name_while_a_sort_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nothing is left behind, whether the task ends, fails or is killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spec = SortFrame(("x",), (False,), (False,))
    config = configured(Config(), {"sort_memory_bytes": 1})
    (operator,) = operators([spec], config)
    sort: Any = operator
    for frame in FRAMES:
        sort.process(frame, 0)

    assert list(tmp_path.iterdir()) == []
    assert sum(frame.height for frame in sort.finish()) == 10


def test_closing_gives_the_space_back_before_the_rows_were_read() -> None:
    """A task that fails is closed in the middle of its work."""
    file, queue = FrameFile(), FrameQueue(1)
    for frame in FRAMES:
        file.append(frame)
        queue.append(frame)
    file.close()
    queue.close()
    queue.close()

    assert not queue.is_on_disk
    with pytest.raises(ValueError, match="closed file"):
        file.append(FRAMES[0])


def test_sort_that_fails_behind_its_runs_fails_the_job_with_the_cause() -> None:
    """What comes after the sort is the user's."""
    flow = ms.Flow("failing")
    numbers = flow.from_frame(pl.DataFrame({"x": range(1000)}))

    def fail(batch: pl.DataFrame) -> pl.DataFrame:
        raise ValueError(str(batch["x"][0]))

    numbers.sort("x", descending=True).map_batches(fail).collect()

    with pytest.raises(ms.OperatorError, match="999"):
        flow.run(on="local", workers=2, sort_memory_bytes=500)
