"""Lists of batches: whole or not there, the first one counts, damage is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.connectors.batch_lists import (
    AHEAD_BATCHES_MAX,
    BatchDirectory,
    End,
    ListedFile,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> BatchDirectory:
    made = BatchDirectory(tmp_path)
    made.make()
    return made


def written(directory: BatchDirectory, batch: int, text: str) -> list[Path]:
    """Return the one file of an attempt at a batch."""
    place = directory.new_place(batch)
    place.mkdir()
    (place / "part").write_text(text)
    return [place / "part"]


def test_a_batch_is_there_once_it_is_listed(directory: BatchDirectory) -> None:
    """Files alone say nothing: they may be half written."""
    files = written(directory, 0, "rows")
    assert directory.listed(0) is None

    directory.publish(0, files)

    assert directory.listed(0) == [ListedFile(files[0], 4)]
    assert directory.listed(1) is None


def test_the_first_list_of_a_batch_counts(directory: BatchDirectory) -> None:
    """A batch that is written again may be cut otherwise; somebody has read the first."""
    first = written(directory, 0, "first")
    directory.publish(0, first)
    directory.publish(0, written(directory, 0, "second"))

    assert directory.listed(0) == [ListedFile(first[0], 5)]


def test_a_damaged_list_is_refused(directory: BatchDirectory) -> None:
    """A flipped byte must not become another file name."""
    directory.publish(0, written(directory, 0, "rows"))
    path = directory.path / "lists" / "0"
    path.write_bytes(path.read_bytes().replace(b"part", b"pert"))

    with pytest.raises(ValueError, match="lists/0 is damaged"):
        directory.listed(0)


def test_the_end_counts_the_batches(directory: BatchDirectory) -> None:
    """A reader that sees the end first knows that there is more to read."""
    assert directory.end() is None
    for batch in range(11):
        directory.publish(batch, [])
    (directory.path / "lists" / ".11-abc").write_text("left by a writer that died")

    directory.finish("no more")

    assert directory.end() == End(11, "no more")


def test_a_writer_waits_for_the_slowest_reader(directory: BatchDirectory) -> None:
    """Or a stream that is faster than the flow would fill the disk."""
    last = AHEAD_BATCHES_MAX - 1
    assert directory.has_room(last, part_count=2)
    assert not directory.has_room(last + 1, part_count=2)
    directory.mark_read(0, 5)
    assert not directory.has_room(last + 1, part_count=2)
    directory.mark_read(1, 0)
    assert directory.has_room(last + 1, part_count=2)
    assert not directory.has_room(last + 2, part_count=2)


def test_a_writer_does_not_wait_for_nobody(directory: BatchDirectory) -> None:
    """A job that is over must not hold up the query that it stops."""
    assert directory.await_room(0, part_count=1)

    directory.close()

    assert not directory.await_room(0, part_count=1)
