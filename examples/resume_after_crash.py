"""A driver that is killed in the middle, and another one that goes on where it was.

The first run ends itself by SIGKILL, as a power cut would; the second, with the same
state directory, writes the rest, and every row is there exactly once.

    millstream run examples/resume_after_crash.py --on local
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import millstream as ms

ROWS = 40_000


def square(number: int) -> str:
    """Take a while now and then, so that there is something to interrupt."""
    if number % 200 == 0:
        time.sleep(0.005)  # noqa: TID251 - stands for work
    return str(number * number)


def squares(directory: Path) -> ms.Flow:
    """Write the squares of many numbers."""
    flow = ms.Flow("squares")
    flow.from_iterable(range(ROWS)).map(square).write_text(directory / "squares")
    return flow


def begin(directory: Path) -> None:
    """Run until there are snapshots, and no further."""
    job = squares(directory).start(
        on="local", state=directory / "state", snapshot_every="5ms", slice_batches=1
    )
    while not job.wait(0.001):
        if job.epoch > 1:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Let one process begin, and go on in this one."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        command = [sys.executable, __file__, name]
        ended = subprocess.run(command, check=False)  # noqa: S603 - this very file
        print("the first run ended with code", ended.returncode)
        squares(directory).run(state=directory / "state")
        parts = (directory / "squares").glob("part-*")
        found = [int(line) for part in parts for line in part.read_text().split()]
        expected = [number * number for number in range(ROWS)]
        print("every row exactly once:", sorted(found) == expected)


if __name__ == "__main__" and len(sys.argv) > 1:
    begin(Path(sys.argv[1]))
else:
    main()
