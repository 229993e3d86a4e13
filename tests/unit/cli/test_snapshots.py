"""``millstream snapshots``: what it prints about a state directory, and its exit codes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.support.snapshots import JOB, Driver

import millstream as ms
from millstream.cli.main import main
from millstream.state.files import LocalFiles
from millstream.state.key import KEY_VARIABLE, state_key
from millstream.state.layout import ManifestId
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path


class Ended(NamedTuple):
    """What a command left behind."""

    code: object
    out: str
    err: str


class Shell:
    """Types commands about one state directory with three epochs."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys
        files = LocalFiles(directory)
        store = SnapshotStore(files, state_key(files), job=JOB, run="f3a9")
        self.driver = Driver(store, "f3a9")
        self.driver.start()
        self.manifests = [self.driver.commit() for _ in range(3)]

    def type(self, command: str, *options: str) -> Ended:
        with pytest.raises(SystemExit) as caught:
            main(["snapshots", command, str(self.directory), *options])
        return Ended(caught.value.code, *self._capsys.readouterr())


@pytest.fixture
def shell(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    return Shell(tmp_path / "state", capsys)


def test_list_shows_epochs_newest_first(shell: Shell) -> None:
    """With sizes and durations, for a look at how a job is doing."""
    ended = shell.type("list")
    heading, *rows = ended.out.splitlines()
    assert ended.code == 0
    assert heading.split() == ["epoch", "claim", "files", "size", "took", "created"]
    assert [row.split()[0] for row in rows] == ["3", "2", "1"]
    assert "12 ms" in rows[0]
    assert "2030-01-02" in rows[0]


def test_list_names_what_cannot_be_used(shell: Shell) -> None:
    """Damaged manifests, and those of drivers that were superseded."""
    late = shell.directory / ManifestId(1, 3).name
    data = late.read_bytes()
    late.unlink()
    files = shell.driver.store.files
    successor = Driver(SnapshotStore(files, state_key(files), job=JOB, run="b"), "b")
    successor.start()
    late.write_bytes(data)
    (shell.directory / ManifestId(1, 1).name).write_bytes(b"")

    ended = shell.type("list")

    assert ended.code == 0
    assert "epoch 1: manifests/00000001-000001.manifest cannot be used" in ended.out
    assert "epoch 3 of claim 1 is not used: its driver had been superseded" in ended.out


def test_show_breaks_the_newest_epoch_down_by_operator(shell: Shell) -> None:
    """Files and bytes of state, and where the sources are."""
    ended = shell.type("show")
    assert ended.code == 0
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["epoch", "3,", "after", "2"] in lines
    assert ["splits", "2,", "1", "read", "to", "the", "end"] in lines
    payloads = [
        len(segment.payload)
        for ref in shell.manifests[-1].files
        for segment in shell.driver.store.read_segments(ref)
    ]
    assert lines[-1] == ["count", "6", str(sum(payloads))]


def test_show_takes_an_older_epoch(shell: Shell) -> None:
    """By its number."""
    assert "2, after 1" in shell.type("show", "--epoch", "2").out
    ended = shell.type("show", "--epoch", "9")
    assert ended.code == 2
    assert "has no epoch 9; it has 3, 2, 1" in ended.err


def test_verify_is_content_with_a_sound_directory(shell: Shell) -> None:
    """A scheduler looks at the exit code."""
    assert shell.type("verify") == (0, "3 epochs are whole\n", "")


def test_verify_says_a_sentence_for_each_damage(shell: Shell) -> None:
    """And fails."""
    newest = shell.manifests[-1].files
    (shell.directory / newest[-1].name).unlink()
    spoiled = shell.directory / newest[-2].name
    spoiled.write_bytes(spoiled.read_bytes()[:-1] + b"?")

    ended = shell.type("verify")

    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"epoch 3: {newest[-2].name} was changed after it was written",
        f"epoch 3: {newest[-1].name} is missing",
    ]


def test_directory_without_snapshots_is_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most likely the path is wrong, and nothing is made there."""
    with pytest.raises(SystemExit) as caught:
        main(["snapshots", "list", str(tmp_path / "nowhere")])
    assert caught.value.code == 2
    assert "there are no snapshots in" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_missing_key_is_named(shell: Shell) -> None:
    """Without it nothing can be believed."""
    (shell.directory / "key").unlink()
    ended = shell.type("verify")
    assert ended.code == 2
    assert f"set {KEY_VARIABLE}" in ended.err


def test_list_shows_when_a_job_made_an_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the clock on the wall, whatever machine looks."""
    flow = ms.Flow("dated")
    flow.from_iterable([1]).collect()
    flow.run(on="local", state=tmp_path)

    with pytest.raises(SystemExit):
        main(["snapshots", "list", str(tmp_path)])

    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert re.search(r" ms +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$", row)


def test_verify_misses_a_newest_manifest_that_somebody_removed(shell: Shell) -> None:
    """What is left is whole, but it is not all there was."""
    name = ManifestId(1, 3).name
    (shell.directory / name).unlink()
    ended = shell.type("verify")
    assert (ended.code, ended.out) == (1, f"epoch 3: {name} is missing\n")


def test_directory_that_others_can_write_is_not_read(shell: Shell) -> None:
    """Its key may be anybody's, so that nothing in it would be verified."""
    shell.directory.chmod(0o777)
    ended = shell.type("verify")
    assert ended.code != 0
    assert "has the mode 0777" in ended.err
