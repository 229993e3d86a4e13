"""TextSink and JsonLinesSink: nothing is visible before the commit."""

from __future__ import annotations

import json
from collections import namedtuple
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sinking import sealed

from millstream.connectors.files import JsonLinesSink, TextSink
from millstream.errors import OperationalError, SnapshotError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.connectors.base import Sink

JOB = "job/1"


def write(sink: Sink[Any], task: int, *batches: list[Any], epoch: int = 1) -> Any:
    """Write a part, seal it, and return its transaction."""
    with closing(sink.open(JOB, task)) as writer:
        for batch in batches:
            writer.write(batch)
        return sealed(writer, epoch)


def finish(sink: Sink[Any], *transactions: Any) -> None:
    """Do what the driver does after the last epoch."""
    sink.commit(JOB, 1, list(transactions))
    sink.complete(JOB)


def visible(directory: Path) -> dict[str, str]:
    return {
        path.name: path.read_text()
        for path in sorted(directory.iterdir())
        if not path.name.startswith(".")
    }


def test_the_commit_makes_all_parts_visible_at_once(tmp_path: Path) -> None:
    """Until then a reader of the directory sees nothing."""
    directory = tmp_path / "new" / "out"
    sink = TextSink(directory)
    sink.prepare(JOB)
    parts = [write(sink, 0, ["a", "é"], [], ["b"]), write(sink, 3)]
    before = visible(directory)
    sink.commit(JOB, 1, parts)
    committed = visible(directory)
    sink.complete(JOB)

    assert before == {}
    assert committed == {"part-00000.txt": "a\né\nb\n", "part-00003.txt": ""}
    assert visible(directory) == {"_SUCCESS": "", **committed}
    assert not list(directory.glob(".*"))


def test_only_the_attempt_that_the_snapshot_names_is_committed(tmp_path: Path) -> None:
    """A killed attempt leaves a file that another attempt must not touch."""
    sink = TextSink(tmp_path)
    sink.prepare(JOB)
    killed = sink.open(JOB, 0)
    killed.write(["half"])
    write(sink, 0, ["first"])
    part = write(sink, 0, ["second"])
    finish(sink, part)
    killed.close()

    assert visible(tmp_path) == {"_SUCCESS": "", "part-00000.txt": "second\n"}


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    """The worker closes on every way out, also one whose rows are committed."""
    sink = TextSink(tmp_path)
    sink.prepare(JOB)
    writer = sink.open(JOB, 0)
    writer.write(["a"])
    part = sealed(writer, 1)
    writer.close()
    finish(sink, part)
    writer.close()

    assert visible(tmp_path)["part-00000.txt"] == "a\n"


def test_a_commit_that_failed_half_way_can_be_repeated(tmp_path: Path) -> None:
    """Parts that were already moved are not taken for old ones."""
    sink = TextSink(tmp_path, overwrite=True)
    (tmp_path / "part-00009.txt").write_text("old")
    obstacle = tmp_path / "part-00001.txt"
    obstacle.mkdir()
    sink.prepare(JOB)
    parts = [write(sink, 0, ["a"]), write(sink, 1, ["b"])]
    with pytest.raises(OperationalError, match="none is replaced"):
        sink.commit(JOB, 1, parts)
    has_moved_first = (tmp_path / "part-00000.txt").exists()
    obstacle.rmdir()
    sink.commit(JOB, 1, parts)
    finish(sink, *parts)

    assert has_moved_first
    assert visible(tmp_path) == {
        "_SUCCESS": "",
        "part-00000.txt": "a\n",
        "part-00001.txt": "b\n",
    }


def test_a_commit_of_parts_that_are_gone_fails(tmp_path: Path) -> None:
    """A lost staging directory must not look like an empty result."""
    sink = TextSink(tmp_path)
    sink.prepare(JOB)
    part = write(sink, 0, ["a"])
    sink.abort(JOB)

    with pytest.raises(SnapshotError, match="is neither there nor in its place"):
        sink.commit(JOB, 1, [part])


def test_a_directory_with_content_is_refused(tmp_path: Path) -> None:
    """Nobody's files are mixed with ours unless they say so."""
    (tmp_path / "notes.md").write_text("mine")

    with pytest.raises(UsageError, match=r"holds 'notes\.md'\); .* overwrite=True"):
        TextSink(tmp_path).prepare(JOB)

    assert [path.name for path in tmp_path.iterdir()] == ["notes.md"]


def test_leftovers_of_a_killed_job_do_not_count_as_content(tmp_path: Path) -> None:
    """The user need not clean up after a crash; the same job begins afresh."""
    sink = TextSink(tmp_path)
    (tmp_path / ".millstream-other").mkdir()
    sink.prepare(JOB)
    write(sink, 5, ["of the killed run"])
    sink.prepare(JOB)
    finish(sink, write(sink, 0, ["a"]))

    assert visible(tmp_path) == {"_SUCCESS": "", "part-00000.txt": "a\n"}
    assert (tmp_path / ".millstream-other").exists()


def test_overwriting_replaces_old_parts_and_nothing_else(tmp_path: Path) -> None:
    """The old output stays readable until the new one is complete."""
    (tmp_path / "part-00000.jsonl").write_text("old")
    (tmp_path / "part-00007.txt").write_text("old")
    (tmp_path / "notes.md").write_text("mine")
    sink = TextSink(tmp_path, overwrite=True)
    sink.prepare(JOB)
    part = write(sink, 0, ["new"])
    before = visible(tmp_path)
    finish(sink, part)

    assert set(before) == {"notes.md", "part-00000.jsonl", "part-00007.txt"}
    assert visible(tmp_path) == {
        "_SUCCESS": "",
        "notes.md": "mine",
        "part-00000.txt": "new\n",
    }


def test_every_epoch_has_parts_of_its_own(tmp_path: Path) -> None:
    """A commit adds to what is visible and changes none of it."""
    sink = TextSink(tmp_path, overwrite=True)
    sink.prepare(JOB)
    with closing(sink.open(JOB, 0)) as writer:
        for epoch, row in enumerate("abc", 1):
            writer.write([row])
            sink.commit(JOB, epoch, [sealed(writer, epoch)])

    assert visible(tmp_path) == {
        "part-00000.txt": "a\n",
        "part-00000-000002.txt": "b\n",
        "part-00000-000003.txt": "c\n",
    }


def test_an_epoch_without_rows_has_no_part_unless_it_is_the_first(
    tmp_path: Path,
) -> None:
    """A stream that is quiet for long does not leave a file behind at every cut."""
    sink = TextSink(tmp_path)
    sink.prepare(JOB)
    with closing(sink.open(JOB, 0)) as writer:
        first, second = sealed(writer, 1), sealed(writer, 2)

    assert first is not None
    assert second is None


def test_what_was_not_sealed_is_lost(tmp_path: Path) -> None:
    """A writer that is closed between two cuts has nothing to commit."""
    sink = TextSink(tmp_path)
    sink.prepare(JOB)
    with closing(sink.open(JOB, 0)) as writer:
        writer.write(["a"])
        part = sealed(writer, 1)
        writer.write(["b"])
    finish(sink, part)

    assert visible(tmp_path) == {"_SUCCESS": "", "part-00000.txt": "a\n"}


def test_a_job_that_goes_on_finds_what_it_had_sealed(tmp_path: Path) -> None:
    """The driver died between the snapshot and the commit."""
    sink = TextSink(tmp_path)
    sink.prepare(JOB)
    sink.commit(JOB, 1, [write(sink, 0, ["a"])])
    sealed = write(sink, 0, ["b"], epoch=2)

    again = TextSink(tmp_path)
    again.prepare(JOB, is_resumed=True)
    again.commit(JOB, 2, [sealed])

    assert visible(tmp_path) == {
        "part-00000.txt": "a\n",
        "part-00000-000002.txt": "b\n",
    }


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_complete_job_that_is_started_again_keeps_its_output(
    tmp_path: Path, *, overwrite: bool
) -> None:
    """Its last commit is repeated; nothing of it is there to be moved any more."""
    sink = TextSink(tmp_path, overwrite=overwrite)
    sink.prepare(JOB)
    part = write(sink, 0, ["a"])
    finish(sink, part)

    sink.prepare(JOB, is_resumed=True)
    finish(sink, part)

    assert visible(tmp_path) == {"_SUCCESS": "", "part-00000.txt": "a\n"}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("is_there", [True, False])
def test_an_abort_leaves_what_was_there_before(
    tmp_path: Path,
    *,
    is_there: bool,
) -> None:
    """A directory that the job made goes, one that was there stays."""
    directory = tmp_path / "out"
    if is_there:
        directory.mkdir()
    sink = TextSink(directory)
    sink.prepare(JOB)
    write(sink, 0, ["a"])
    sink.abort(JOB)
    sink.abort(JOB)

    assert directory.exists() == is_there
    assert not is_there or list(directory.iterdir()) == []


@pytest.mark.parametrize("below", ["", "out", "out/deeper"])
def test_a_file_in_the_way_is_refused_while_the_flow_is_built(
    tmp_path: Path, below: str
) -> None:
    """No worker is started for a directory that cannot be made."""
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"file is a file; name another"):
        TextSink(tmp_path / "file" / below)


def test_a_worker_that_does_not_see_the_directory_says_so(tmp_path: Path) -> None:
    """The driver's disk is not every worker's disk."""
    with pytest.raises(FileNotFoundError, match="driver and all workers share"):
        write(TextSink(tmp_path), 0, ["a"])


def test_text_rows_must_be_text(tmp_path: Path) -> None:
    """Writing the repr of whatever comes hides mistakes."""
    sink = TextSink(tmp_path)
    sink.prepare(JOB)
    rows: list[Any] = ["a", ("b", 1)]

    with pytest.raises(TypeError, match=r"str, got a tuple; put \.map\(str\)"):
        write(sink, 0, rows)


def test_json_rows_come_back_as_they_were(tmp_path: Path) -> None:
    """Tuples become lists; a row never spans lines."""
    point = namedtuple("point", "x y")  # noqa: PYI024
    sink = JsonLinesSink(tmp_path)
    sink.prepare(JOB)
    rows = [{"a": [1, 2.5, None]}, "two\nlines \u2028 é", ("k", True), point(1, 2)]
    finish(sink, write(sink, 0, rows))
    text = visible(tmp_path)["part-00000.jsonl"]

    assert [json.loads(line) for line in text.split("\n")[:-1]] == [
        {"a": [1, 2.5, None]},
        "two\nlines \u2028 é",
        ["k", True],
        [1, 2],
    ]
    assert "é" in text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({1, 2}, "a row of type set as JSON .*set is not JSON serializable"),
        ({"a": b"x"}, "a row of type dict as JSON .*bytes is not JSON"),
        ((1, float("nan")), "a row of type tuple as JSON .*not JSON compliant"),
    ],
)
def test_rows_that_json_cannot_hold_are_named(
    tmp_path: Path, row: Any, message: str
) -> None:
    """The error tells the type of the row and what is wrong inside it."""
    sink = JsonLinesSink(tmp_path)
    sink.prepare(JOB)

    with pytest.raises(TypeError, match=message):
        write(sink, 0, [1, row])
