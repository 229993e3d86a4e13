"""Real processes in which something fails beside the task's own calls: who is told what."""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.fault


def slowly(make: Callable[[], Any], number: int) -> tuple[int, Any]:
    """Return something that no other process can get, after longer than the timer."""
    time.sleep(0.1)  # noqa: TID251 - the timer of the buffer must come first
    return number, make() if number > 2 else number


@pytest.mark.parametrize(
    "buffer",
    [ms.adaptive(1024, "20ms"), ms.fixed(1)],
    ids=["by a timer", "at once"],
)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lambda: None, "[Cc]an't pickle.*sending"),
        (lambda: b"x" * 2_000_000, "1000000 bytes of packet_bytes_max.*sending"),
    ],
    ids=["no pickle", "too long"],
)
def test_a_row_that_cannot_be_sent_fails_its_operator(
    make: Callable[[], Any], words: str, buffer: ms.BufferPolicy
) -> None:
    """The worker lives to say which row and why; it used to die of it in a timer."""
    flow = ms.Flow("timer", buffer=buffer)
    rows = flow.from_iterable(range(8)).map(partial(slowly, make))
    rows.key_by(lambda r: r[0]).map(len).unkey().collect()

    with pytest.raises(ms.OperatorError, match=f"key_by .*{words}"):
        flow.run(
            on="processes", workers=2, source_batch_rows=1, packet_bytes_max=1_000_000
        )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 700 KB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(tmp_path)]
    subprocess.run(mount, check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_full_disk_under_a_sink_is_what_the_job_fails_of(
    disk: Path, tmp_path_factory: pytest.TempPathFactory, *, is_kept: bool
) -> None:
    """Neither closing the file nor losing workers hides it; `restarts_max` is kept."""
    flow = ms.Flow("full")
    rows = flow.from_iterable(range(6000)).map(lambda i: str(i) * 200)
    rows.write_text(disk / "out", name="texts")
    state = str(tmp_path_factory.mktemp("state")) if is_kept else None
    job = flow.start(
        on="processes", workers=2, source_batch_rows=16, state=state,
        snapshot_every="200ms", restarts_max=2,
    )  # fmt: skip

    with pytest.raises(ms.OperatorError, match=r"'texts' .*No space left on device"):
        job.wait()
    failures = [r for r in job.recoveries() if "No space left" in r.reason]
    assert len(job.recoveries()) == len(failures)
