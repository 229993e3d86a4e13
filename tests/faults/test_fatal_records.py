"""Records that a job does not survive, however often it reads them: it ends, and says why.

A source that takes its time lets snapshots complete in front of the record each time.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

import millstream as ms
from millstream.protocol.restarts import LOSSES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

FATAL = 60


def read(pause_s: float, index: int, count: int) -> Iterator[int]:
    """Give numbers, slowly enough for snapshots in between."""
    for number in range(index, 400, count):
        time.sleep(pause_s)  # noqa: TID251 - a source that waits for its data
        yield number


def refuse(number: int) -> int:
    if number == FATAL:
        msg = f"{number} is fatal"
        raise ValueError(msg)
    return number


def leave(number: int) -> int:
    if number == FATAL:
        os._exit(9)
    return number


def fatal_flow(step: Callable[[int], int], pause_s: float) -> ms.Flow:
    flow = ms.Flow("fatal")
    numbers = flow.from_parallel(partial(read, pause_s))
    numbers.shuffle().map(step, name="step").key_by(lambda n: n % 7).count().collect()
    return flow


@pytest.mark.parametrize("pause_s", [0.001, 0.01, 0.04], ids="{} s".format)
@pytest.mark.parametrize("workers", [1, 2])
def test_record_at_which_a_function_always_raises_ends_the_job(
    tmp_path: Path, workers: int, pause_s: float
) -> None:
    """After `restarts_max` tries, whatever epochs were complete between them."""
    job = fatal_flow(refuse, pause_s).start(
        on="processes", workers=workers, state=tmp_path / "state", restarts_max=2,
        snapshot_every="20ms", source_batch_rows=1,
    )  # fmt: skip

    with pytest.raises(ms.OperatorError, match=r"'step' .*60 is fatal"):
        job.wait()
    assert len(job.recoveries()) == 2


def test_record_at_which_the_worker_always_exits_ends_the_job(tmp_path: Path) -> None:
    """Its workers are not replaced for ever."""
    job = fatal_flow(leave, 0.001).start(
        on="processes", workers=2, state=tmp_path / "state", snapshot_every="20ms",
        source_batch_rows=1,
    )  # fmt: skip

    with pytest.raises(ms.WorkerLostError, match=f"after {LOSSES_MAX} others"):
        job.wait()
    assert len(job.snapshots()) > 0
