"""A driver whose flow never ends by itself; it prints its workers, then its fate."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator


def ticks(rank: int, size: int) -> Iterator[int]:
    pause = threading.Event()
    while not pause.wait(0.01):
        yield rank


def main() -> None:
    on: Any = sys.argv[1]
    master = sys.argv[2] if len(sys.argv) > 2 else None
    flow = ms.Flow("endless")
    flow.from_parallel(ticks).shuffle().filter(lambda _: False).collect()
    job = flow.start(on=on, master=master, workers=2)
    while job.status() != "running":
        job.wait(0.05)
    print(json.dumps(job.worker_pids()), flush=True)  # noqa: T201 - the test reads it
    try:
        job.wait()
    except ms.MillstreamError as error:
        print(f"{type(error).__name__}: {error}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
