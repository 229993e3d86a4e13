"""Marks of heirs and savepoints that somebody without the key has planted in a directory.

They say which jobs have gone on from a state, and where a savepoint of it is.  Whoever makes
a driver believe one stops a job that has no heir, or sends the driver to look elsewhere.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from tests.spark.driving import eventually
from tests.system.test_guarded_state import Table

import millstream as ms
from millstream.errors import SnapshotError
from millstream.state.files import LocalFiles
from millstream.state.key import KEY_VARIABLE, given_key, stored_key
from millstream.state.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RIVAL = "rival-1"
"""A job that has written more to the table than any other."""


class Place(Table):
    """A job that writes to a table which another job has written to as well."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder, self.savepoint = folder, folder / "savepoint"
        self.start().stop(self.savepoint)
        with sqlite3.connect(self.database) as connection:
            given = (RIVAL, "table", 10**6, "")
            connection.execute("INSERT INTO millstream_epochs VALUES (?,?,?,?)", given)

    def check_goes_on(self, **options: Any) -> None:
        """Let the job write some more, each row once."""
        before, job = len(self.rows()), self.start(**options)
        eventually(lambda: len(self.rows()) > before)
        job.cancel()
        with pytest.raises(ms.JobCancelledError):
            job.wait()
        assert self.rows() == list(range(len(self.rows())))

    def notes(self, directory: Path) -> Notes:
        files = LocalFiles(directory)
        return Notes(files, stored_key(files, given_key()) or b"")


@pytest.fixture(params=["", "5" * 64], ids=["key-in-directory", "given-key"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """Return a job that was stopped, with its key in its directory or not."""
    if request.param:
        monkeypatch.setenv(KEY_VARIABLE, request.param)
    return Place(tmp_path)


def plant(directory: Path, name: str, data: bytes) -> None:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def empty(place: Place, directory: Path) -> bytes:
    """Return what marks were before they had a proof."""
    del place, directory
    return b""


def made_up(place: Place, directory: Path) -> bytes:
    """Return a proof under a key that the forger has made."""
    del place
    files = LocalFiles(directory)
    notes = Notes(files, bytes(32))
    notes._directory = bytes(16)
    notes.publish("resumed/other", b"")
    return (directory / "resumed" / "other").read_bytes()


def renamed(place: Place, directory: Path) -> bytes:
    """Return a true note of the same directory, of another name."""
    notes = place.notes(directory)
    notes.publish("resumed/numbers-1", b"")
    data = (directory / "resumed" / "numbers-1").read_bytes()
    (directory / "resumed" / "numbers-1").unlink()
    return data


def foreign(place: Place, directory: Path) -> bytes:
    """Return a true note of that name, of the other directory of the job."""
    other = place.state if directory == place.savepoint else place.savepoint
    place.notes(other).publish(f"resumed/{RIVAL}", b"")
    data = (other / "resumed" / RIVAL).read_bytes()
    (other / "resumed" / RIVAL).unlink()
    return data


FORGERIES = [empty, made_up, renamed, foreign]


@pytest.mark.parametrize("forged", FORGERIES)
@pytest.mark.parametrize("target", ["state", "savepoint"])
def test_a_planted_heir_stops_no_job(
    place: Place,
    target: str,
    forged: Callable[[Place, Path], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A name in the directory made the sinks speak of a job that has no part in this."""
    caplog.set_level(logging.WARNING, logger="millstream")
    directory: Path = getattr(place, target)
    plant(directory, f"resumed/{RIVAL}", forged(place, directory))
    options: dict[str, Any] = (
        {}
        if target == "state"
        else {"resume_from": directory, "state": place.folder / "new"}
    )
    place.check_goes_on(**options)

    assert f"resumed/{RIVAL} in {directory} was not written by a driver" in caplog.text


def test_a_true_heir_is_believed(place: Place) -> None:
    """Of a note with a proof the sinks are asked, or the rows would be written twice."""
    place.notes(place.state).publish(f"resumed/{RIVAL}", b"")
    with pytest.raises(SnapshotError, match=f"committed epoch 1000000 of job {RIVAL}"):
        place.start()
    place.notes(place.savepoint).publish(f"resumed/{RIVAL}", b"")
    with pytest.raises(SnapshotError, match=f"committed epoch 1000000 of job {RIVAL}"):
        place.start(state=place.folder / "new", resume_from=place.savepoint)


def test_a_planted_savepoint_is_not_looked_for(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would open whatever URL somebody writes there."""
    caplog.set_level(logging.WARNING, logger="millstream")
    url = f"memory:/{place.folder}/elsewhere"
    system = fsspec.filesystem("memory")
    system.pipe_file(f"{place.folder}/elsewhere/resumed/{RIVAL}", b"")
    asked: list[Any] = []

    def found(*given: Any, **_: Any) -> dict[str, Any]:
        asked.append(given)
        return {}

    monkeypatch.setattr(type(system), "find", found)
    plant(place.state, "stopped/0123456789abcdef", url.encode())
    place.check_goes_on()

    assert asked == []
    assert "stopped/0123456789abcdef in" in caplog.text


def test_a_job_is_told_of_its_heir_through_both_notes(place: Place) -> None:
    """The state names the savepoint, and that one the job that began with it."""
    [stopped] = (place.state / "stopped").iterdir()
    assert place.notes(place.state).read(f"stopped/{stopped.name}") is not None
    place.notes(place.savepoint).publish(f"resumed/{RIVAL}", b"")

    with pytest.raises(SnapshotError, match=f"committed epoch 1000000 of job {RIVAL}"):
        place.start()
