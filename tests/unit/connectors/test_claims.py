"""A directory belongs to one sink of one job: while it is built, and on disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.sinking import written

import millstream as ms
from millstream.connectors.claims import CLAIM_NAME, Claim, LocalClaims
from millstream.connectors.files import TextSink
from millstream.connectors.remote import file_system
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JOB = "flow-1"


def lines(directory: Path) -> list[str]:
    parts = sorted(directory.glob("part-*"), key=lambda path: path.stem)
    return [line for part in parts for line in part.read_text().splitlines()]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "spelt",
    [
        lambda path: path,
        lambda path: f"{path}/",
        lambda path: path.parent / "x" / ".." / path.name,
        lambda path: f"file://{path}",
        lambda path: path.parent / "link",
    ],
    ids=["same", "slash", "dots", "url", "symlink"],
)
def test_two_sinks_of_a_flow_cannot_have_one_directory(
    tmp_path: Path, spelt: Callable[[Path], Any], *, overwrite: bool
) -> None:
    """One would take the other's parts for its own; half of the rows were gone."""
    (tmp_path / "link").symlink_to(tmp_path / "out")
    flow = ms.Flow("two")
    rows = flow.from_iterable(["a"])
    rows.write_text(tmp_path / "out", name="first", overwrite=overwrite)

    with pytest.raises(ms.UsageError, match=r"'first' at .* 'second' at .* same direc"):
        rows.write_jsonl(spelt(tmp_path / "out"), name="second", overwrite=overwrite)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "text"])
def test_two_sinks_of_frames_cannot_have_one_url(kind: str) -> None:
    """The same holds for stores, whatever the URL looks like."""
    flow = ms.Flow("two")
    frame = flow.from_frame(pl.DataFrame({"x": ["a"]}))
    getattr(frame, f"write_{kind}")("memory://claims/out")

    with pytest.raises(ms.UsageError, match="same directory"):
        frame.write_csv("memory://claims/x/../out/")


def test_two_jobs_at_once_cannot_have_one_directory(tmp_path: Path) -> None:
    """The second comer is told whose it is, and the first loses nothing."""
    gate = tmp_path / "gate"

    def wait(row: int) -> str:
        while not gate.exists():
            pass
        return str(row)

    first = ms.Flow("first")
    first.from_iterable(range(5)).map(wait).write_text(tmp_path / "out", name="mine")
    job = first.start(on="local")
    try:
        for overwrite in (False, True):
            second = ms.Flow("second")
            rows = second.from_iterable(["x"])
            rows.write_text(tmp_path / "out", overwrite=overwrite)
            with pytest.raises(
                ms.UsageError, match=r"in use by the sink 'mine' of job "
            ):
                second.run(on="local")
    finally:
        gate.touch()
        job.wait()

    assert lines(tmp_path / "out") == list("01234")
    assert not list((tmp_path / "out").glob(".*"))


KILLED = """
import os, signal, sys
import millstream as ms
flow = ms.Flow("killed")
rows = flow.from_iterable(range(100)).map(lambda i: os.kill(os.getpid(), 9) if i > 50 else str(i))
rows.write_text(sys.argv[1], name="texts")
flow.run(on="local", state=sys.argv[2] or None, snapshot_every="5ms")
"""


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_claim_of_a_killed_driver_is_its_own_jobs(
    tmp_path: Path, *, is_kept: bool
) -> None:
    """A resume goes on, another job is refused unless nobody can go on."""
    out, state = tmp_path / "out", str(tmp_path / "state") if is_kept else ""
    killed = subprocess.run([sys.executable, "-c", KILLED, out, state], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (out / CLAIM_NAME).exists()

    other = ms.Flow("other")
    other.from_iterable(["x"]).write_text(out)
    if is_kept:
        with pytest.raises(
            ms.UsageError, match=r"belongs to the sink 'texts' of job ki"
        ):
            other.run(on="local")
        again = ms.Flow("killed")
        again.from_iterable(range(100)).map(str).write_text(out, name="texts")
        again.run(on="local", state=state)
        assert sorted(map(int, lines(out))) == list(range(100))
    else:
        other.run(on="local")
        assert lines(out) == ["x"]
    assert not list(out.glob(".*"))


def test_overwriting_takes_the_directory_of_a_job_that_could_go_on(
    tmp_path: Path,
) -> None:
    """The user said so; the job that is resumed after that is told."""
    old, new = TextSink(tmp_path, name="old"), TextSink(tmp_path, overwrite=True)
    leave = old.claim("old-1", state="/state")
    old.prepare("old-1")
    leave()
    leave = new.claim("new-1", state="/other")
    new.prepare("new-1")
    leave()

    with pytest.raises(ms.UsageError, match="belongs to the sink '' of job new-1"):
        old.claim("old-1", state="/state", is_resumed=True)
    assert [path.name for path in tmp_path.glob(".millstream-*-1")] == [
        ".millstream-new-1"
    ]


def test_a_flow_that_goes_on_from_a_savepoint_takes_its_directory_over(
    tmp_path: Path,
) -> None:
    """It is another job of the same flow, and replaces nothing of the first."""
    old = TextSink(tmp_path, overwrite=True, name="texts")
    leave = old.claim("flow-1", state="/state")
    old.prepare("flow-1")
    old.commit("flow-1", 1, [written(old, "flow-1", 0, ["a"])])
    leave()
    new = TextSink(tmp_path, overwrite=True, name="texts")
    new.claim("flow-2", state="/other", is_resumed=True)
    new.prepare("flow-2", is_resumed=True)
    new.commit("flow-2", 2, [written(new, "flow-2", 0, ["b"], epoch=2)])

    assert lines(tmp_path) == ["a", "b"]
    with pytest.raises(ms.OperationalError, match="none is replaced"):
        new.commit("flow-2", 2, [written(new, "flow-2", 0, ["c"], epoch=2)])


def test_a_refused_start_leaves_no_claim(tmp_path: Path) -> None:
    """The user mends what was wrong, and starts again."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.md").write_text("mine")
    flow = ms.Flow("refused")
    flow.from_iterable(["a"]).write_text(tmp_path / "out")
    with pytest.raises(ms.UsageError, match="not empty"):
        flow.run(on="local", state=str(tmp_path / "state"))

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.md"]


def test_a_url_is_claimed_by_a_note() -> None:
    """Nobody can lock it, so a note that nobody took back is removed by hand."""
    sink, other = (TextSink("memory://noted/out", name=n) for n in ("one", "two"))
    sink.claim("a-1", state="/state")
    with pytest.raises(ms.UsageError, match=rf"in use .* remove {CLAIM_NAME} in it if"):
        other.claim("b-1")
    leave = sink.claim("a-1", state="/state", is_resumed=True)  # it was killed before
    leave()
    with pytest.raises(
        ms.UsageError, match="can go on with its state directory /state"
    ):
        other.claim("b-1")
    sink.complete("a-1")

    assert other.claim("b-1") is not None


@pytest.mark.timeout(20)
def test_a_pipe_for_a_note_is_refused_and_no_job_waits_for_it(tmp_path: Path) -> None:
    """Whoever can write the output directory could stop every job there."""
    os.mkfifo(tmp_path / CLAIM_NAME)
    claims = LocalClaims(tmp_path)
    assert claims.noted() is None
    with pytest.raises(UsageError, match="is no regular file"):
        claims.take(Claim("job", "sink"), overwrite=False, is_resumed=False)


KEY, OTHER_KEY = bytes(32), b"\1" * 32


def planted(directory: Path, claim: Claim) -> None:
    directory.mkdir(exist_ok=True)
    (directory / CLAIM_NAME).write_bytes(claim.to_bytes())


def resting(directory: Path, job: str, key: bytes, **options: Any) -> bytes:
    """Let a job take a directory and leave it; return the note."""
    sink = TextSink(directory, name="texts")
    sink.claim(job, state=f"/{job}", key=key, **options)()
    return (directory / CLAIM_NAME).read_bytes()


def forged_heir(directory: Path) -> None:
    """Say that another job has the directory by now."""
    planted(
        directory, Claim("flow-9", "texts", "/evil", is_running=False, heir_of=(JOB,))
    )


def altered_heir(directory: Path) -> None:
    """Change one word of a true note."""
    resting(directory, JOB, KEY)
    note = resting(directory, "flow-9", KEY, is_resumed=True)
    (directory / CLAIM_NAME).write_bytes(note.replace(b"/flow-9", b"/evil"))


def moved_heir(directory: Path) -> None:
    """Bring a true note from another directory of the same jobs."""
    other = directory.with_name("other")
    resting(other, JOB, KEY)
    note = resting(other, "flow-9", KEY, is_resumed=True)
    directory.mkdir()
    (directory / CLAIM_NAME).write_bytes(note)


def strange_heir(directory: Path) -> None:
    """Write a note under another key."""
    resting(directory, JOB, OTHER_KEY)
    resting(directory, "flow-9", OTHER_KEY, is_resumed=True)


@pytest.mark.parametrize("forge", [forged_heir, altered_heir, moved_heir, strange_heir])
def test_a_job_is_not_sent_to_an_heir_that_is_not_proved(
    tmp_path: Path, forge: Callable[[Path], None]
) -> None:
    """The user would go on with whatever state directory a forger names."""
    forge(tmp_path / "out")
    sink = TextSink(tmp_path / "out", name="texts")
    with pytest.raises(UsageError, match="cannot be verified with the key") as refused:
        sink.claim(JOB, state="/state", is_resumed=True, key=KEY)

    assert "/evil" not in str(refused.value)
    assert "/flow-9" not in str(refused.value)


def test_a_job_is_sent_to_an_heir_that_has_its_key(tmp_path: Path) -> None:
    """The note is its own family's."""
    resting(tmp_path, JOB, KEY)
    resting(tmp_path, "flow-2", KEY, is_resumed=True)
    sink = TextSink(tmp_path, name="texts")
    with pytest.raises(UsageError, match="can go on with its state directory /flow-2"):
        sink.claim(JOB, state=f"/{JOB}", is_resumed=True, key=KEY)


@pytest.mark.parametrize("key", [b"", KEY, OTHER_KEY])
def test_everybody_can_read_whose_a_directory_is(tmp_path: Path, key: bytes) -> None:
    """With another key, or without one; the directory is refused all the same."""
    resting(tmp_path, JOB, KEY)
    with pytest.raises(
        UsageError, match=f"the sink 'texts' of job {JOB}, which can go"
    ):
        TextSink(tmp_path).claim("other-1", key=key)


@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_forged_note_removes_no_staged_output(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture, *, is_late: bool
) -> None:
    """A job that ends would clean up behind whomever the note calls its forebears."""
    url = f"{tmp_path}/out" if place == "local" else f"memory:/{tmp_path}/out"
    victim, sink = TextSink(url, name="texts"), TextSink(url, name="texts")
    victim.prepare("victim-1")
    forged = Claim(JOB, "texts", "/state", is_running=False, heir_of=("victim-1",))
    system, root = file_system(url)
    if not is_late:
        system.pipe_file(f"{root}/{CLAIM_NAME}", forged.to_bytes())
    sink.claim(JOB, state="/state", is_resumed=True, key=KEY)
    sink.prepare(JOB, is_resumed=True)
    if is_late:
        system.pipe_file(f"{root}/{CLAIM_NAME}", forged.to_bytes())
    sink.complete(JOB)

    assert system.exists(f"{root}/.millstream-victim-1")
    assert not system.exists(f"{root}/.millstream-{JOB}")
    assert is_late or f"was not written by job {JOB}" in caplog.text


def test_a_job_cleans_up_behind_those_that_it_went_on_from(tmp_path: Path) -> None:
    """Its own notes say who they were, over as many savepoints as there were."""
    sink = TextSink(tmp_path, name="texts")
    for number in (1, 2, 3):
        leave = sink.claim(
            f"flow-{number}", state=f"/{number}", is_resumed=number > 1, key=KEY
        )
        sink.prepare(f"flow-{number}", is_resumed=number > 1)
        leave()
    assert len(list(tmp_path.glob(".millstream-flow-*"))) == 3
    sink.complete("flow-3")

    assert [path.name for path in tmp_path.iterdir()] == ["_SUCCESS"]
