"""Jobs with credentials in URLs: these are used, and found nowhere afterwards.

A web server asks for a password and a signature.  The job is stopped in the middle, both
are changed, and it goes on; then all that it has written and said is searched for them.
"""

from __future__ import annotations

import base64
import logging
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import fsspec
import pytest
from tests.spark.driving import eventually
from tests.support.stores import serving

import millstream as ms
from millstream.cli.snapshots import described, opened
from millstream.launch.control import ask_to_stop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINES = [f"line {number:05}" for number in range(800)]
FREE = 300
"""Lines that are read without a pause, so that some are left when the job is stopped."""


@dataclass
class Lock:
    """What the server wants to see now."""

    password: str = "hunter2/1st@pw"
    signature: str = "5f1c0ffee1st"

    def is_allowed(self, path: str, given: str) -> bool:
        wanted = base64.b64encode(f"bob:{self.password}".encode()).decode()
        return given == f"Basic {wanted}" and path.endswith(f"?sig={self.signature}")

    def url(self, server: str, name: str) -> str:
        host = server.removeprefix("http://")
        user = f"bob:{quote(self.password, safe='')}"
        return f"http://{user}@{host}/{name}?sig={self.signature}"

    def secrets(self) -> list[str]:
        return [self.password, quote(self.password, safe=""), self.signature]


def slowly(flag: Path) -> Callable[[str], str]:
    """Return a function that takes its time with later lines, until the file is there."""

    def function(line: str) -> str:
        if int(line.split()[1]) > FREE and not flag.exists():
            threading.Event().wait(0.001)
        return line

    return function


def made_flow(lock: Lock, server: str, folder: Path) -> tuple[ms.Flow, Any]:
    urls: list[str | Path] = [lock.url(server, f"{n}.txt") for n in range(2)]
    flow = ms.Flow("guarded")
    lines = flow.read_text(urls).map(slowly(folder / "flag"))
    lines.write_text(folder / "out")
    return flow, lines.collect()


def written(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def check_absent(secrets: list[str], said: list[str], stored: list[bytes]) -> None:
    """Find no secret in what was said and stored, of which there must be some."""
    assert said
    assert stored
    for secret in secrets:
        assert [text for text in said if secret in text] == []
        assert [data for data in stored if secret.encode() in data] == []


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "processes"])
def test_a_job_goes_on_with_other_credentials_and_keeps_none(
    launcher: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The input is the same one; each line is read and written once."""
    caplog.set_level(logging.DEBUG, logger="millstream")
    lock, state = Lock(), tmp_path / "state"
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(2):
        part = "".join(f"{line}\n" for line in LINES[number::2])
        (folder / f"{number}.txt").write_text(part)
    options: dict[str, Any] = {
        "on": launcher,
        "workers": 2,
        "state": state,
        "snapshot_every": "20ms",
        "source_block_bytes": 512,
        "buffer": ms.fixed(4),
    }
    secrets = lock.secrets()
    with serving(folder, is_allowed=lock.is_allowed) as server:
        first, _ = made_flow(lock, server, tmp_path)
        stopped = first.start(**options)
        eventually(lambda: stopped.epoch)
        stopped.stop()
        said = [*stopped.story(), first.explain(), *described(opened(str(state)), None)]
        lock.password, lock.signature = "hunter3/2nd@pw", "5f1c0ffee2nd"
        secrets += lock.secrets()
        (tmp_path / "flag").touch()
        second, rows = made_flow(lock, server, tmp_path)
        done = second.run(**options)
    said += [*done.story(), *done.migrations, *described(opened(str(state)), None)]

    assert [stopped.status(), done.status()] == ["stopped", "succeeded"]
    assert sorted(rows.result()) == LINES
    output = "".join(path.read_text() for path in (tmp_path / "out").glob("part-*"))
    assert sorted(output.splitlines()) == LINES
    assert any(b"/1.txt" in data for data in written(state))
    check_absent(secrets, [*said, caplog.text], [*written(state), *written(tmp_path)])


def test_urls_that_differ_in_their_queries_are_all_read(tmp_path: Path) -> None:
    """They are shown alike, and are different splits all the same; again after a stop."""
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in LINES))
    rows, story = [], []
    with serving(tmp_path) as server:
        for signature in ("first", "second"):
            urls: list[str | Path] = [
                f"{server}/a.txt?n={n}&{signature}" for n in (1, 2)
            ]
            flow = ms.Flow("alike")
            rows.append(flow.read_text(urls).collect())
            job = flow.start(on="local", workers=2, state=tmp_path / "state")
            job.stop(drain=True)
            story += job.story()

    assert [sorted(each.result()) for each in rows] == [sorted(LINES * 2)] * 2
    check_absent(["first", "second"], story, written(tmp_path / "state"))


def test_a_savepoint_with_credentials_is_not_asked_for_by_a_file(
    tmp_path: Path,
) -> None:
    """The request lies in the state directory until the driver has taken it."""
    with pytest.raises(ms.UsageError, match="sftp://host/x was given with cred") as no:
        ask_to_stop(
            str(tmp_path), "sftp://bob:hunter2@host/x", drain=False, wait=lambda _: None
        )

    assert "hunter2" not in str(no.value)
    assert written(tmp_path) == []


@pytest.mark.slow
def test_credentials_that_are_refused_are_not_repeated(tmp_path: Path) -> None:
    """Neither by the sentence, nor by what a traceback shows of its causes."""
    lock, wrong = Lock(), Lock(password="hunter4/wrong")
    (tmp_path / "a.csv").write_text("n\n1\n")
    with serving(tmp_path, is_allowed=lock.is_allowed) as server:
        for verb in ("read_text", "read_csv", "read_parquet"):
            with pytest.raises(ms.UsageError) as refused:
                getattr(ms.Flow("no"), verb)(wrong.url(server, "a.csv"))
            told = "".join(traceback.format_exception(refused.value))
            check_absent(wrong.secrets(), [told, str(refused.value)], [b"none"])
            assert "/a.csv" in str(refused.value)


def test_a_file_that_goes_is_reported_without_its_credentials(tmp_path: Path) -> None:
    """The report comes from a worker, with a traceback."""
    lock = Lock()
    file = tmp_path / "a.txt"
    file.write_text("line\n" * 10)
    with serving(tmp_path, is_allowed=lock.is_allowed) as server:
        flow = ms.Flow("gone")
        flow.read_text(lock.url(server, "a.txt")).collect()
        file.unlink()
        with pytest.raises(ms.MillstreamError) as failed:
            flow.run(on="local", workers=1)
    told = "".join(traceback.format_exception(failed.value))

    assert "/a.txt" in str(failed.value)
    check_absent(lock.secrets(), [told, *getattr(failed.value, "story", [])], [b"none"])


def test_a_state_directory_with_credentials_keeps_and_shows_none(
    tmp_path: Path,
) -> None:
    """Neither in its own files, nor in the claim on an output directory."""
    system = fsspec.filesystem("memory")
    states = [f"memory://bob:hunter{n}@host{tmp_path}/state" for n in (2, 3)]
    places = [state.removeprefix("memory:/") for state in states]
    flow = ms.Flow("guarded")
    rows = flow.from_iterable(range(100)).map(str)
    rows.write_text(tmp_path / "out")
    job = flow.start(on="local", state=states[0])
    job.stop()
    said = [*job.story(), flow.explain(), *described(opened(states[0]), None)]
    system.copy(places[0], places[1], recursive=True)
    flow = ms.Flow("guarded")
    flow.from_iterable(range(100)).map(str).write_text(tmp_path / "out")
    said += flow.run(on="local", state=states[1]).story()
    with pytest.raises(ms.MillstreamError) as refused:
        ms.Flow("other").run(on="local", state=states[0])
    said.append("".join(traceback.format_exception(refused.value)))
    stored = [system.cat_file(path) for place in places for path in system.find(place)]

    output = "".join(path.read_text() for path in (tmp_path / "out").glob("part-*"))

    assert sorted(map(int, output.split())) == list(range(100))
    check_absent(["hunter2", "hunter3"], said, [*stored, *written(tmp_path)])
