"""A job that writes rolled parts and kills its whole process at one of the steps of that.

Usage: ``rolling_driver.py DIRECTORY STEP``
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import millstream as ms
from millstream.connectors.local_output import LocalOutput, _LocalPart
from millstream.connectors.parts import PartsWriter

ROWS = 4000


def dying(made: type[Any], name: str, steps: itertools.count[int], last: int) -> None:
    """Let a method kill the process before or after its work, when its turn comes."""
    work = getattr(made, name)

    def step(*args: Any, **kwargs: Any) -> Any:
        die(next(steps), last)
        result = work(*args, **kwargs)
        die(next(steps), last)
        return result

    setattr(made, name, step)


def die(step: int, last: int) -> None:
    if step == last:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    directory, last = Path(sys.argv[1]), int(sys.argv[2])
    steps = itertools.count(1)
    for made, names in (
        (_LocalPart, ["finish", "store"]),
        (PartsWriter, ["_merged"]),
        (LocalOutput, ["_move", "discard", "clean", "complete"]),
    ):
        for name in names:
            dying(made, name, steps, last)
    flow = ms.Flow("rolling")
    numbers = flow.from_parallel(lambda i, n: range(i, ROWS, n)).shuffle()
    numbers.map(str).write_text(directory / "out", roll="2kB", roll_every="20ms")
    flow.run(
        on="local", workers=2, state=str(directory / "state"), snapshot_every="2ms",
        source_batch_rows=16, slice_batches=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()
