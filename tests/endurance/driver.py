"""The driver program of one endless job.

    python -m tests.endurance.driver NAME DIRECTORY processes|spark KEYS SPEED

Snapshots come SPEED times as often as usual.  It writes down now and then how the job stands, and ends when its standard input does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.endurance.flows import JOBS
from tests.endurance.paced import Ages, Paced
from tests.faults.chaos_flow import whole_file

import millstream as ms

__all__ = ["STATE", "STATUS"]

STATE, STATUS = "state", "status"
WORKERS = 2
LOOK_S = 0.5
PAUSES = 60
"""Snapshots whose pause is told."""


def main(name: str, where: str, on: str, keys: str, speed: str) -> None:
    directory, kind = Path(where), JOBS[name]
    began_ns = time.monotonic_ns()
    ages = Ages(directory, began_ns)
    flow = kind.build(Paced(began_ns, kind.rate), ages, directory, int(keys))
    where_to: dict[str, Any] = {"on": on, "state_backend": kind.backend}
    job = flow.start(
        **where_to,
        workers=WORKERS,
        state=directory / STATE,
        snapshot_every_ms=kind.every_ms // int(speed),
        lease_ms=20_000,
    )
    is_stopped = threading.Event()

    def await_the_end() -> None:
        sys.stdin.read()
        is_stopped.set()

    threading.Thread(target=await_the_end, daemon=True).start()
    while not is_stopped.wait(LOOK_S):
        if job.wait(0):
            break
        _tell(job, directory)
    job.cancel()
    try:
        job.wait()
    except ms.JobCancelledError:
        sys.stdout.write("cancelled\n")


def _tell(job: ms.Job, directory: Path) -> None:
    taken = job.snapshots()[-PAUSES:]
    seen = {
        "workers": job.worker_pids(),
        "epoch": job.epoch,
        "pauses_ms": [[s.epoch, s.pause_ms] for s in taken],
        "snapshots_ms": [[s.epoch, s.duration_ms] for s in taken],
        "rows_in": sum(stage.rows_in for stage in job.metrics()),
        "recoveries": len(job.recoveries()),
    }
    whole_file(directory / STATUS, json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
