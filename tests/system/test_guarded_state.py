"""A job whose state directory somebody has tampered with, with every row as the oracle.

Nothing is written twice or left out: the job goes on as if nothing had happened, or it is
refused before it has done anything.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import eventually
from tests.support.ticking import Ticks

import millstream as ms
from millstream.cli.stopping import stop_job
from millstream.errors import SnapshotError, UsageError
from millstream.launch.control import ControlDesk
from millstream.state.files import LocalFiles
from millstream.state.key import KEY_VARIABLE, state_key
from millstream.state.notes import Notes

if TYPE_CHECKING:
    from pathlib import Path


OPTIONS: dict[str, Any] = {
    "snapshot_every": "5ms",
    "source_idle_ms": 1,
    "control_look_ms": 5,
}
LAUNCHERS = [
    "local",
    pytest.param("processes", marks=pytest.mark.slow),
    pytest.param("spark", marks=pytest.mark.spark),
]


class Table:
    """A job that writes numbers to a table."""

    def __init__(self, place: Path) -> None:
        self.state = place / "state"
        self.database = place / "rows.db"
        with sqlite3.connect(self.database) as connection:
            connection.execute("CREATE TABLE t (n INT)")
        self.database.chmod(0o600)

    def start(self, on: Any = "local", **options: Any) -> ms.Job:
        flow = ms.Flow("numbers")
        rows = flow.read(Ticks(), name="in").map(lambda n: (n,), name="row")
        rows.write_sqlite(str(self.database), "t", columns=["n"], name="table")
        return flow.start(**({"on": on, "state": self.state} | OPTIONS | options))

    def rows(self) -> list[int]:
        with sqlite3.connect(self.database) as connection:
            return [n for (n,) in connection.execute("SELECT n FROM t ORDER BY n")]


class Files:
    """The same job, with files for output."""

    def __init__(self, place: Path) -> None:
        self.state = place / "state"
        self.output = place / "output"

    def start(self, on: Any = "local", **options: Any) -> ms.Job:
        flow = ms.Flow("numbers")
        rows = flow.read(Ticks(), name="in").map(str, name="row")
        rows.write_text(self.output, name="files")
        return flow.start(**({"on": on, "state": self.state} | OPTIONS | options))

    def rows(self) -> list[int]:
        parts = self.output.glob("part-*")
        return sorted(int(row) for part in parts for row in part.read_text().split())


Numbers = Table | Files
KINDS = [Files, pytest.param(Table, marks=pytest.mark.slow)]


def get_on(job: ms.Job) -> None:
    """Wait until a job has committed some epochs more."""
    before = job.epoch
    eventually(lambda: job.epoch > before)


def run_on(numbers: Numbers, **options: Any) -> int:
    """Let the job write some rows more and stop; return its last epoch."""
    job = numbers.start(**options)
    get_on(job)
    return job.stop()


def is_every_row_once(numbers: Numbers) -> bool:
    rows = numbers.rows()
    return rows == list(range(len(rows))) and bool(rows)


@pytest.mark.parametrize("on", LAUNCHERS[:2])
def test_touch_in_claims_neither_stops_nor_rolls_back(tmp_path: Path, on: str) -> None:
    """A name was enough once; now nobody believes it, also who asks the job to stop."""
    numbers = Table(tmp_path)
    job = numbers.start(on)
    get_on(job)
    claims = numbers.state / "claims"
    for name in ("000002-00000001-000001", "000009", "000009-00000000-000000"):
        (claims / name).touch()
    get_on(job)
    assert job.status() == "running"
    stop_job(str(numbers.state), None, drain=False)
    job.wait()
    stopped = job.epoch

    again = numbers.start(on)
    get_on(again)
    assert again.stop() > stopped
    assert is_every_row_once(numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_unlinked_newest_manifest_is_refused_by_a_job_that_writes(
    tmp_path: Path, kind: type[Numbers]
) -> None:
    """To go on from the one before would write its rows again."""
    numbers = kind(tmp_path)
    epoch = run_on(numbers)
    manifest = max((numbers.state / "manifests").iterdir())
    manifest.rename(tmp_path / "aside")

    for _ in range(2):
        with pytest.raises(SnapshotError, match=f"epoch {epoch}: .* is missing") as no:
            numbers.start()
        assert f"newest/{manifest.stem}" in str(no.value)

    (tmp_path / "aside").rename(manifest)
    run_on(numbers)
    assert is_every_row_once(numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_old_copy_of_the_directory_is_refused_by_what_sinks_show(
    tmp_path: Path, kind: type[Numbers]
) -> None:
    """A backup that was put back is consistent in itself; the output knows better."""
    numbers = kind(tmp_path)
    run_on(numbers)
    shutil.copytree(numbers.state, tmp_path / "backup")
    epoch = run_on(numbers)
    shutil.move(numbers.state, tmp_path / "newer")
    shutil.copytree(tmp_path / "backup", numbers.state)

    for _ in range(2):
        with pytest.raises(SnapshotError, match=f"has committed epoch {epoch} of job"):
            numbers.start()

    shutil.rmtree(numbers.state)
    shutil.move(tmp_path / "newer", numbers.state)
    run_on(numbers)
    assert is_every_row_once(numbers)


@pytest.mark.slow
def test_old_copy_is_gone_on_with_after_its_output_was_removed(tmp_path: Path) -> None:
    """The way out that the sentence names."""
    numbers = Files(tmp_path)
    run_on(numbers)
    shutil.copytree(numbers.state, tmp_path / "backup")
    shown = set(numbers.output.iterdir())
    run_on(numbers)
    shutil.rmtree(numbers.state)
    shutil.copytree(tmp_path / "backup", numbers.state)
    for part in set(numbers.output.glob("part-*")) - shown:
        part.unlink()

    run_on(numbers)

    assert is_every_row_once(numbers)


def test_snapshots_of_another_job_under_the_same_key_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copies them cannot make them belong there."""
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    ours, theirs = tmp_path / "a", tmp_path / "b"
    for place in (ours, theirs):
        place.mkdir()
        run_on(Table(place))
    shutil.rmtree(ours / "state" / "manifests")
    shutil.copytree(theirs / "state", ours / "state", dirs_exist_ok=True)
    # Only what says which directory it is stays.
    (ours / "state" / "directory").write_bytes(saved_id(tmp_path))

    numbers = Files(ours)
    with pytest.raises(SnapshotError, match="belongs to another state directory"):
        numbers.start()


def saved_id(place: Path) -> bytes:
    """Return the file `directory` of a directory of its own, under the same key."""
    files = LocalFiles(place / "fresh")
    Notes(files, state_key(files)).make_directory()
    return files.read("directory")


@pytest.mark.parametrize("on", LAUNCHERS)
def test_key_function_opens_state_savepoint_and_resumption(
    tmp_path: Path, on: str
) -> None:
    """No key lies in any of the directories, and nobody without it gets on."""
    calls: list[int] = []

    def vault() -> bytes:
        calls.append(1)
        return bytes(range(32))

    numbers = Table(tmp_path)
    job = numbers.start(on, state_key=vault)
    get_on(job)
    job.stop(tmp_path / "savepoint")
    numbers.state = tmp_path / "state-2"
    run_on(
        numbers,
        on=on,
        state_key=vault,
        resume_from=tmp_path / "savepoint",
    )

    assert is_every_row_once(numbers)
    assert len(calls) == 2
    assert not list(tmp_path.rglob("key"))
    with pytest.raises((SnapshotError, UsageError), match="key"):
        numbers.start(on)


@pytest.mark.slow
def test_copy_that_is_not_in_use_is_gone_on_with_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A backup is put to use; a directory that was moved is none."""
    numbers = Table(tmp_path)
    run_on(numbers)
    shutil.move(numbers.state, tmp_path / "moved")
    numbers.state = tmp_path / "moved"
    run_on(numbers)
    assert "is a copy of" not in caplog.text

    shutil.copytree(numbers.state, tmp_path / "copy")
    numbers.state = tmp_path / "copy"
    run_on(numbers)
    assert f"{tmp_path / 'copy'} is a copy of {tmp_path / 'moved'}" in caplog.text
    assert is_every_row_once(numbers)


@pytest.mark.parametrize("key", [None, bytes(32)], ids=["in the bucket", "given"])
def test_job_in_a_bucket_says_once_that_its_key_lies_there(
    key: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever can write there can run code, unless the key is elsewhere."""
    flow = ms.Flow("bucket")
    rows = flow.from_iterable([1, 2, 3]).collect()
    for _ in range(2):
        caplog.clear()
        flow.run(on="local", state=f"memory://{tmp_path.name}", state_key=key)
        assert rows.result() == [1, 2, 3]
        assert caplog.text.count("whoever can write there") == (key is None)


def test_request_is_taken_once(tmp_path: Path) -> None:
    """Whoever kept a copy of it may put it back, and cannot make one."""
    files, key = LocalFiles(tmp_path), bytes(32)
    notes = Notes(files, key)
    notes.make_directory()
    asked: list[Any] = []
    desk = ControlDesk(str(tmp_path), key, 1, partial(_ask, asked))
    content = json.dumps({"claim": 1, "savepoint": None, "drain": False}).encode()
    notes.publish("control/ab.request", content)
    kept = files.read("control/ab.request")

    desk._look()
    files.publish("control/ab.request", kept)
    files.publish("control/cd.request", kept)
    files.publish("control/ef.request", content)
    desk._look()

    assert asked == [None]


def _ask(asked: list[Any], savepoint: object, *, drain: bool) -> Any:
    del drain
    asked.append(savepoint)

    class Answered:
        @staticmethod
        def refusal() -> None:
            return None

    return Answered()
