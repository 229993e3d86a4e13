"""Write the golden state directory of the present snapshot format.

    python -m tests.golden.snapshots.make

It refuses to change one that is there: what a release has written is pinned for ever.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
from tests.golden.snapshots.flows import INPUT, KEY, OUTPUT, PINNED, Gate, Pinned
from tests.spark.driving import eventually

import millstream as ms
from millstream.state.manifest import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
FILES = fsspec.filesystem("memory")
GOLDEN = "/golden"
EPOCHS = 4
SETTINGS: dict[str, Any] = {
    "on": "local",
    "workers": 2,
    "snapshots_retained": 1,
    "state_key": KEY,
    "snapshot_every": "30ms",
    "source_idle_ms": 1,
    "source_batch_rows": 4,
    "buffer": ms.fixed(1),
    "local_channel_batches": 1,
}


def main() -> None:
    """Leave every flow in the middle, and write down what it comes to."""
    target = HERE / f"v{FORMAT}"
    if target.exists():
        sys.exit(f"{target} is there already, and what it holds is pinned")
    for name, pinned in PINNED.items():
        with tempfile.TemporaryDirectory() as place, inside(Path(place)):
            prepare(pinned)
            leave(pinned)
            shutil.copytree(place, target / name, ignore=shutil.ignore_patterns("lock"))
        with tempfile.TemporaryDirectory() as place, inside(Path(place)):
            prepare(pinned)
            text = json.dumps(found(pinned, Gate(is_open=True), workers=1), indent=1)
        (target / name / "expected.json").write_text(text + "\n")


@contextmanager
def inside(directory: Path) -> Iterator[None]:
    """Work in a directory, so that nothing stored names where that is."""
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def take_back() -> None:
    """Put the files of a golden directory where its flow left them."""
    if FILES.exists(GOLDEN):
        FILES.rm(GOLDEN, recursive=True)
    kept = Path("files")
    for path in kept.rglob("*"):
        if path.is_file():
            FILES.pipe(f"{GOLDEN}/{path.relative_to(kept)}", path.read_bytes())


def _keep() -> None:
    """Write down what is in the file system in memory."""
    for path in FILES.find(GOLDEN):
        target = Path("files", path.removeprefix(f"{GOLDEN}/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(FILES.cat_file(path))


def prepare(pinned: Pinned) -> None:
    """Make what a flow reads and writes."""
    take_back()
    if not pinned.has_files:
        return
    FILES.pipe(INPUT, b"some\nlines\nof text\n")
    with sqlite3.connect("table.db") as database:
        database.execute("CREATE TABLE texts (text TEXT, size INTEGER)")
    database.close()


def leave(pinned: Pinned) -> None:
    """Run a flow until it waits for its gate, or is in its round, and leave it."""
    gate = Gate()
    gate.job = job = pinned.flow(gate).start(state="state", **SETTINGS)
    eventually(lambda: job.epoch > 0 and _is_there(job, pinned.leave_in_round))
    job.cancel()
    with suppress(ms.JobCancelledError):
        job.wait()
    _keep()


def _is_there(job: ms.Job, number: int | None) -> bool:
    if number is None:
        return job.epoch >= EPOCHS
    done = [stage.rounds.done for stage in job.metrics() if stage.rounds]
    return max(done, default=0) >= number


def found(pinned: Pinned, gate: Gate, **settings: Any) -> dict[str, list[str]]:
    """Run a flow to its end; return its rows as texts, in order."""
    flow = pinned.flow(gate)
    flow.run(**(SETTINGS | settings))
    rows = {handle.name: _texts(handle.result()) for handle in flow.handles}
    return rows | (_written() if pinned.has_files else {})


def _written() -> dict[str, list[str]]:
    parts = FILES.glob(f"{OUTPUT}/part-*")
    lines = [FILES.cat_file(part).decode().splitlines() for part in parts]
    database = sqlite3.connect("table.db")
    table = _texts(database.execute("SELECT * FROM texts").fetchall())
    database.close()
    return {"files": sorted(line for part in lines for line in part), "table": table}


def _texts(result: Any) -> list[str]:
    if hasattr(result, "rows"):
        result = result.rows()
    return sorted(map(repr, result)) if isinstance(result, list) else [repr(result)]


if __name__ == "__main__":
    main()
