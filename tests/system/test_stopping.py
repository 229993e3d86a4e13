"""Stop with a savepoint: the last epoch, behind which nothing is read, made or written."""

from __future__ import annotations

import sqlite3
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.spark.driving import eventually
from tests.support.ticking import Ticks

import millstream as ms
from millstream.cli.stopping import stop_job
from millstream.errors import SnapshotError, UsageError
from millstream.state.key import KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


LOCAL: dict[str, Any] = {
    "on": "local",
    "snapshot_every": "5ms",
    "source_idle_ms": 1,
    "control_look_ms": 5,
}


def to_table(database: Path) -> ms.Flow:
    """Return a flow without end that writes every number once."""
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (n INT)")
    flow = ms.Flow("numbers")
    rows = flow.read(Ticks(), name="numbers").map(lambda n: (n,), name="row")
    rows.write_sqlite(str(database), "t", columns=["n"], name="table")
    return flow


def written(database: Path) -> list[int]:
    with sqlite3.connect(database) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM t ORDER BY n")]


def has_written(job: ms.Job, database: Path, rows: int) -> bool:
    return job.epoch > 0 and len(written(database)) >= rows


def started(flow: ms.Flow, database: Path, **options: Any) -> ms.Job:
    """Start a flow and let it write some rows more."""
    rows = len(written(database)) + 1
    job = flow.start(**(LOCAL | options))
    eventually(partial(has_written, job, database, rows))
    return job


@pytest.mark.parametrize(
    "on",
    [
        "local",
        pytest.param("processes", marks=pytest.mark.slow),
        pytest.param("spark", marks=pytest.mark.spark),
    ],
)
def test_stopped_job_goes_on_elsewhere_and_writes_every_row_once(
    tmp_path: Path, on: Any
) -> None:
    """The way to upgrade a job: stop with a savepoint, and begin with that."""
    database = tmp_path / "rows.db"
    flow = to_table(database)

    job = started(flow, database, on=on, workers=2, state=tmp_path / "one")
    epoch = job.stop(tmp_path / "savepoint")
    rows = written(database)

    assert job.wait()
    assert (job.status(), job.epoch) == ("stopped", epoch)
    again = started(
        flow, database, on=on, workers=1, state=tmp_path / "two",
        resume_from=tmp_path / "savepoint",
    )  # fmt: skip
    again.stop()
    after = written(database)
    assert after[: len(rows)] != after
    assert len(set(after)) == len(after)
    assert set(rows) < set(after)


def test_job_stopped_without_a_savepoint_goes_on_in_its_own_directory(
    tmp_path: Path,
) -> None:
    """Its last snapshot is there, and is the last epoch that was committed."""
    database = tmp_path / "rows.db"
    flow = to_table(database)

    job = started(flow, database, state=tmp_path / "state")
    epoch = job.stop()
    again = started(flow, database, state=tmp_path / "state", workers=2)
    again.stop()

    rows = written(database)
    assert again.epoch > epoch
    assert rows == list(range(len(rows)))


def test_stopping_twice_copies_the_same_epoch(tmp_path: Path) -> None:
    """Whether the second comes while the first is under way, or long after."""
    flow = ms.Flow("numbers")
    flow.read(Ticks()).map(str).for_each(len)
    job = flow.start(state=tmp_path / "state", **LOCAL)
    first: list[int] = []
    other = threading.Thread(target=lambda: first.append(job.stop(tmp_path / "a")))
    other.start()

    second = job.stop(tmp_path / "b")
    other.join()
    third = job.stop(tmp_path / "c")

    assert [second, third] == [first[0]] * 2
    assert job.stop() == second


def test_stop_drains_bounded_input(tmp_path: Path) -> None:
    """All of it is read and its operators flush for the last time; the job is complete then."""
    flow = ms.Flow("bounded")
    total = flow.from_iterable(range(1000), name="rows").sum(name="total")
    job = flow.start(state=tmp_path / "state", **LOCAL)

    job.stop(tmp_path / "savepoint", drain=True)

    assert (job.status(), total.result()) == ("succeeded", 499_500)
    again = flow.run(on="local", resume_from=tmp_path / "savepoint", workers=2)
    assert (again.status(), total.result()) == ("complete", 499_500)


def test_stop_of_a_job_that_has_ended(tmp_path: Path) -> None:
    """A complete one has a last snapshot to copy; one that was cancelled says so."""
    flow = ms.Flow("bounded")
    flow.from_iterable(range(3)).collect()
    job = flow.run(state=tmp_path / "state", **LOCAL)

    assert job.stop(tmp_path / "savepoint") == job.epoch
    again = flow.run(state=tmp_path / "state", **LOCAL)
    assert again.stop(tmp_path / "another") == job.epoch
    endless = ms.Flow("endless")
    endless.read(Ticks()).for_each(str)
    cancelled = endless.start(state=tmp_path / "other", **LOCAL)
    cancelled.cancel()
    with pytest.raises(ms.JobCancelledError):
        cancelled.stop(tmp_path / "third")


def test_stop_is_refused_before_anything_happens(tmp_path: Path) -> None:
    """Without snapshots, and where a savepoint is already; the job goes on."""
    flow = ms.Flow("numbers")
    flow.read(Ticks()).for_each(str)
    job = flow.start(state=tmp_path / "state", **LOCAL)
    job.savepoint(tmp_path / "taken")

    with pytest.raises(SnapshotError, match="holds snapshots already; name a new"):
        job.stop(tmp_path / "taken")
    assert job.status() == "running"
    job.stop()
    unkept = flow.start(on="local")
    with pytest.raises(UsageError, match="a stop needs snapshots, and this job takes"):
        unkept.stop()
    unkept.cancel()


def test_job_goes_on_if_its_savepoint_cannot_be_written(tmp_path: Path) -> None:
    """Somebody wanted it to end with a savepoint, not without."""
    database = tmp_path / "rows.db"
    job = started(to_table(database), database, state=tmp_path / "state")
    (tmp_path / "file").touch()
    (tmp_path / "savepoint" / "key").mkdir(parents=True)

    places = {
        tmp_path / "file" / "savepoint": "no savepoint can be written to",
        tmp_path / "savepoint": "key is a link or no regular file",
    }
    for place, refusal in places.items():
        with pytest.raises(SnapshotError, match=refusal):
            job.stop(place)

    rows = len(written(database))
    eventually(partial(has_written, job, database, rows + 1))
    assert job.status() == "running"
    job.stop()


@pytest.mark.parametrize("sink", ["table", "files"])
def test_savepoint_that_a_sink_is_ahead_of_is_refused(
    tmp_path: Path, sink: str
) -> None:
    """Savepoint, cancel, resume wrote all rows between the first two a second time."""
    flow, database = ms.Flow("numbers"), tmp_path / "rows.db"
    if sink == "table":
        flow = to_table(database)
    else:
        rows = flow.read(Ticks(), name="numbers").map(str, name="text")
        rows.write_text(tmp_path / "out", roll_every="0s", name="files")
    job = flow.start(state=tmp_path / "one", **LOCAL)
    epoch = job.savepoint(tmp_path / "savepoint")
    eventually(lambda: job.epoch > epoch + 1)
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()
    go_on = partial(flow.start, **LOCAL, resume_from=tmp_path / "savepoint")

    with pytest.raises(SnapshotError, match=rf"the sink '{sink}' has committed epoch"):
        go_on(state=tmp_path / "two")

    assert not (tmp_path / "two").exists()
    for part in tmp_path.glob("out/part-*"):
        if int(part.stem.rpartition("-")[2]) > epoch:
            part.unlink()
    job = go_on(state=tmp_path / "two", repeat_output=True)
    job.stop()


def test_savepoint_is_the_beginning_of_one_job(tmp_path: Path) -> None:
    """A second one would write what the first has written after it."""
    database = tmp_path / "rows.db"
    flow = to_table(database)
    started(flow, database, state=tmp_path / "one").stop(tmp_path / "savepoint")
    again = started(
        flow, database, state=tmp_path / "two", resume_from=tmp_path / "savepoint"
    )
    again.stop()

    with pytest.raises(SnapshotError, match="has committed epoch"):
        flow.start(
            **LOCAL, state=tmp_path / "three", resume_from=tmp_path / "savepoint"
        )

    # The job that began with it goes on, and may still be told where it began.
    third = started(
        flow, database, state=tmp_path / "two", resume_from=tmp_path / "savepoint"
    )
    third.stop()
    rows = written(database)
    assert rows == list(range(len(rows)))


def to_files(directory: Path, rows: int | None = None) -> ms.Flow:
    """Return a flow that writes every number once, for ever or so many of them."""
    flow = ms.Flow("numbers")
    numbers = flow.read(Ticks(), name="numbers").map(str, name="text")
    if rows is not None:
        numbers = numbers.limit(rows, name="enough")
    numbers.write_text(directory, roll_every="0s", name="table")
    return flow


def lines(directory: Path) -> list[int]:
    parts = directory.glob("part-*")
    return sorted(int(line) for part in parts for line in part.read_text().split())


def has_more(found: Callable[[], list[int]], least: int) -> bool:
    return len(found()) > least


@pytest.mark.parametrize("sink", ["table", "files"])
def test_stopped_job_that_another_went_on_from_is_over(
    tmp_path: Path, sink: str
) -> None:
    """Whoever starts the old program by mistake would write what the new one has written."""
    database, out = tmp_path / "rows.db", tmp_path / "out"
    flow = to_table(database) if sink == "table" else to_files(out)
    found = partial(written, database) if sink == "table" else partial(lines, out)
    savepoint = tmp_path / "savepoint"
    places: list[dict[str, Any]] = [
        {"state": tmp_path / "one"},
        {"state": tmp_path / "two", "resume_from": savepoint},
    ]
    for place in places:
        job = flow.start(**LOCAL, **place)
        eventually(partial(has_more, found, len(found())))
        job.stop(None if "resume_from" in place else savepoint)

    words = "committed epoch .* state directory .* second time"
    with pytest.raises(SnapshotError, match=words):
        flow.start(**LOCAL, state=tmp_path / "one")

    flow.start(**LOCAL, state=tmp_path / "two").stop()
    assert found() == list(range(len(found())))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", r"says that job .* went on from job .* there, which cannot be verified"),
        ("5" * 64, r"belongs to job .* by now, which went"),
    ],
    ids=["keys-in-directories", "given-key"],
)
def test_directory_does_not_go_back_to_a_job_that_was_left(
    key: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the heir has shown nothing yet; and it cleans up behind both at its end.

    Who has the heir's key is told where it keeps its state.
    """
    if key:
        monkeypatch.setenv(KEY_VARIABLE, key)
    flow, out = to_files(tmp_path / "out"), tmp_path / "out"
    job = flow.start(**LOCAL, state=tmp_path / "one")
    eventually(lambda: len(lines(out)) > 3)
    job.stop(tmp_path / "savepoint")
    begins: dict[str, Any] = {"resume_from": tmp_path / "savepoint"}
    idle = ms.Flow("numbers")
    rows = idle.read(Ticks(), name="numbers").filter(lambda _: False, name="none")
    rows.map(str, name="text").write_text(out, name="table")
    idle.start(**LOCAL, **begins, state=tmp_path / "two").stop()

    with pytest.raises(UsageError, match=words) as refused:
        flow.start(**LOCAL, state=tmp_path / "one")
    assert (str(tmp_path / "two") in str(refused.value)) == bool(key)

    to_files(out, rows=5).run(**LOCAL, state=tmp_path / "two")
    assert not list(out.glob(".*"))


def test_old_parts_that_are_yet_to_be_replaced_are_nobodys_lead(tmp_path: Path) -> None:
    """A job that overwrites and was stopped before its first part goes on."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "part-table-00000-000900.txt").write_text("-1\n")
    flow = ms.Flow("numbers")
    rows = flow.read(Ticks(), name="numbers").map(str, name="text")
    rows.write_text(out, overwrite=True, name="table")
    job = flow.start(**LOCAL, state=tmp_path / "one")
    eventually(lambda: job.epoch > 2)
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()
    assert lines(out) == [-1]

    flow.start(**LOCAL, state=tmp_path / "one").stop(tmp_path / "savepoint")

    assert lines(out) == list(range(len(lines(out))))


@pytest.mark.parametrize("verb", ["iterate", "loop", "frames"])
def test_loops_and_frames_are_stopped_between_two_rounds(
    tmp_path: Path, verb: str
) -> None:
    """And go on from there at another width: every row makes all of its rounds."""
    flow = ms.Flow("rounds")
    rows = flow.from_parallel(lambda rank, size: range(rank, 20, size), name="rows")
    if verb == "loop":
        made = rows.map(lambda i: (i, 0), name="tokens").loop(
            lambda tokens: (
                tokens.map(lambda t: (t[0], t[1] + 1), name="lap")
                .shuffle(name="spread")
                .filter(lambda t: t[1] < 600, name="back"),
                tokens.filter(lambda t: t[1] == 599, name="out"),
            ),
            name="loop",
        )
        made.map(lambda t: t[0], name="number").collect(name="found")
        expected = list(range(20))
    elif verb == "iterate":
        rows.iterate(
            lambda q: q.map(lambda i: i + 1, name="one").shuffle(name="spread"),
            max_rounds=300,
            name="it",
        ).collect(name="found")
        expected = list(range(300, 320))
    else:
        frame = rows.map(lambda i: {"n": i}, name="dicts").to_frame(
            {"n": pl.Int64}, name="frame"
        )
        frame.iterate(
            lambda f: f.with_columns(n=pl.col("n") + 1), max_rounds=300, name="it"
        ).to_rows(name="out").map(lambda row: row["n"]).collect(name="found")
        expected = list(range(300, 320))

    job = flow.start(state=tmp_path / "one", workers=3, **LOCAL)
    eventually(lambda: job.epoch > 1 or job.status() == "succeeded")
    job.stop(tmp_path / "savepoint")
    again = flow.run(
        state=tmp_path / "two", workers=2, resume_from=tmp_path / "savepoint", **LOCAL
    )

    assert sorted(again.result()["found"]) == expected


def test_command_stops_a_running_job_through_its_state_directory(
    tmp_path: Path,
) -> None:
    """And says so where there is none, or where the savepoint cannot be made."""
    flow = ms.Flow("numbers")
    flow.read(Ticks()).for_each(str)
    state = str(tmp_path / "state")
    with pytest.raises(UsageError, match="no job has run on"):
        stop_job(state, None, drain=False)
    job = flow.start(state=state, **LOCAL)
    job.savepoint(tmp_path / "taken")

    with pytest.raises(SnapshotError, match="holds snapshots already"):
        stop_job(state, str(tmp_path / "taken"), drain=False)
    line = stop_job(state, str(tmp_path / "savepoint"), drain=False)

    assert line.startswith(
        f"the job has stopped, its last epoch is {job.epoch}; a save"
    )
    assert job.wait()
    assert job.status() == "stopped"
    with pytest.raises(UsageError, match="no driver works on"):
        stop_job(state, None, drain=False)
    assert list((tmp_path / "state").glob("control/*")) == []


def test_request_that_nobody_with_the_key_has_written_is_not_taken(
    tmp_path: Path,
) -> None:
    """Who can write to the directory cannot stop the job unless they read the key."""
    flow = ms.Flow("numbers")
    flow.read(Ticks()).for_each(str)
    job = flow.start(state=tmp_path / "state", **LOCAL)
    (tmp_path / "state" / "control").mkdir()
    request = b'{"claim": 1, "savepoint": null, "drain": false}' + bytes(32)
    (tmp_path / "state" / "control" / "ab.request").write_bytes(request)

    epoch = job.epoch
    eventually(lambda: job.epoch > epoch + 5)

    assert job.status() == "running"
    job.stop()
