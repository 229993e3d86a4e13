"""A driver on one of two hosts, each of which has an executor; it tells the job's secrets.

Rows are regrouped by key between the workers and come to the driver, one by one.  Their
words are in no program, only in rows: whoever hears them has heard rows.  Asked to kill,
it ends the worker on the other host, with SIGKILL, once there is a snapshot.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream as ms
from millstream.launch.bootstrapping import Bootstrapper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from millstream.launch.worker_main import Bootstrap
    from millstream.protocol.ids import PeerId

ROWS = 2_000
KEYS = 20
PAUSE_S = 0.005
"""Before each row, until the worker was killed."""


def word(kind: str, number: int) -> str:
    """Return what a row or a result carries, which stands nowhere else."""
    return hashlib.sha256(f"{kind} {number}".encode()).hexdigest()


def rows(gate: Path) -> Any:
    """Return a source that is slow until there is such a file."""

    def numbered(rank: int, size: int) -> Iterator[tuple[int, str]]:
        pause = threading.Event()
        for number in range(rank, ROWS, size):
            if not gate.exists():
                pause.wait(PAUSE_S)
            yield number, word("row", number)

    return numbered


def nth(seen: int, row: tuple[int, str]) -> tuple[int, tuple[int, str]]:
    """Count the rows of a key, and answer each."""
    return seen + 1, (seen + 1, word("result", row[0]))


def noted_bootstraps() -> list[Bootstrap]:
    """Return a list that gets what workers get."""
    found: list[Bootstrap] = []
    made = Bootstrapper.bootstrap

    def bootstrap(self: Bootstrapper, worker: PeerId) -> Bootstrap:
        found.append(made(self, worker))
        return found[-1]

    Bootstrapper.bootstrap = bootstrap  # type: ignore[method-assign]
    return found


def flow_and_results(gate: Path) -> tuple[ms.Flow, Any]:
    flow = ms.Flow("two-hosts")
    keyed = flow.from_parallel(rows(gate)).key_by(lambda row: row[0] % KEYS)
    return flow, keyed.map_with_state(0, nth).collect()


def network_of(pid: int) -> int:
    """Return which network namespace a process is in."""
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def kill(job: ms.Job, victim: int, gate: Path) -> None:
    """End a worker once there is something to go back to."""
    while job.epoch < 1:
        job.wait(0.05)
    os.kill(victim, signal.SIGKILL)
    gate.touch()


def run(spark: SparkSession, directory: Path, options: dict[str, bool]) -> Any:
    """Run a job to its end; return what it gave and where its workers were."""
    gate = directory / "gate"
    if not options["kills"]:
        gate.touch()
    flow, results = flow_and_results(gate)
    job = flow.start(
        spark=spark,
        workers=2,
        insecure=options["insecure"],
        state=directory / "state",
        snapshot_every="200ms",
    )
    while job.status() == "starting":
        job.wait(0.05)
    own = network_of(os.getpid())
    far = [pid for pid in job.worker_pids() if network_of(pid) != own]
    if options["kills"]:
        kill(job, far[0], gate)
    job.wait()
    return {
        "results": [(key, *result) for key, result in results.result()],
        "far_workers": len(far),
        "recoveries": len(job.recoveries()),
    }


def refusal(spark: SparkSession, directory: Path) -> str:
    """Return what is said to a job that asks for protection."""
    try:
        run(spark, directory, {"kills": False, "insecure": False})
    except ms.UsageError as error:
        return str(error)
    return ""


def main() -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - not for the test, which imports this

    _, master, home, told, jobs = sys.argv
    bootstraps = noted_bootstraps()
    builder = SparkSession.builder.master(master).appName("two-hosts")
    settings: dict[str, str] = json.loads(told)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    answer: dict[str, Any] = {"jobs": []}
    for number, options in enumerate(json.loads(jobs)):
        directory = Path(home, str(number))
        directory.mkdir()
        if options["insecure"]:
            answer["refusal"] = refusal(spark, directory)
        answer["jobs"].append(run(spark, directory, options))
    spark.stop()
    certificates = [each.certificate for each in bootstraps if each.certificate]
    answer["secrets"] = sorted({each.secret.hex() for each in bootstraps})
    answer["keys"] = sorted({each.private.decode() for each in certificates})
    answer["protections"] = sorted({each.protection.name for each in bootstraps})
    print(json.dumps(answer))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
