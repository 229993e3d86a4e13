"""Reading along with a query, which is a script here: no Spark is needed for that."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from millstream.config import Config
from millstream.connectors.batch_lists import BatchDirectory
from millstream.connectors.spark_stream import SparkStreamSource
from millstream.errors import OperationalError, SnapshotError, UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Never

    from millstream.connectors.base import SourceReader, Split

SCHEMA = pl.Schema({"n": pl.Int64()})


class ScriptedQuery:
    """Stands where Spark's query stands: it ends when the test says so."""

    name = "scripted"

    def __init__(self, directory: str, first: int = 0) -> None:
        self.directory = BatchDirectory(directory)
        self.error: Exception | None = None
        self._next = first
        self._is_over = threading.Event()

    def add_batch(self, *files: list[int]) -> None:
        """List a micro-batch with these rows in its files."""
        place = self.directory.new_place(self._next)
        place.mkdir()
        paths = [place / f"{number}.parquet" for number in range(len(files))]
        for path, rows in zip(paths, files, strict=True):
            pl.DataFrame({"n": rows}, schema=SCHEMA).write_parquet(path)
        self.directory.publish(self._next, paths)
        self._next += 1

    def stop(self) -> None:
        self._is_over.set()

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's word
        self._is_over.wait()
        if self.error is not None:
            raise self.error


class Stream:
    """A source, its query and its splits."""

    def __init__(
        self,
        staging: Path,
        task_count: int,
        kept: str = "",
        before: Stream | None = None,
    ) -> None:
        self.queries: list[ScriptedQuery] = []
        self.part_counts: list[int] = []
        #: Number of the batch at which the checkpoint of the query stands.
        self.checkpoint = 0 if before is None else before.query._next
        self.source = SparkStreamSource(self._start, SCHEMA, str(staging))
        self.source.keep_in(None, kept)
        if before is None:
            self.splits = self.source.splits(task_count)
        else:
            self.splits = before.splits
            self.source.resume(tuple(before.splits))

    def _start(self, directory: str, part_count: int) -> ScriptedQuery:
        self.part_counts.append(part_count)
        self.queries.append(ScriptedQuery(directory, self.checkpoint))
        return self.queries[-1]

    @property
    def query(self) -> ScriptedQuery:
        return self.queries[-1]

    def end(self) -> None:
        self.query.stop()
        while self.query.directory.end() is None:
            threading.Event().wait(0.001)

    def reader(self, split: Split, offset: int = 0) -> SourceReader[pl.DataFrame]:
        return self.source.open(split, offset, Config())


def rows_of(reader: SourceReader[pl.DataFrame]) -> list[tuple[int, list[int]]]:
    """Read a stream that has ended: each batch with the offset after it."""
    found = []
    while (frame := reader.read(1024)) is not None:
        if len(frame):
            rows: Any = frame
            found.append((reader.offset, rows["n"].to_list()))
    return found


@pytest.mark.parametrize("task_count", [1, 2, 3])
def test_every_row_is_read_once_by_any_number_of_tasks(
    tmp_path: Path, task_count: int
) -> None:
    """Files are dealt out so that batches of one file use all tasks as well."""
    stream = Stream(tmp_path, task_count)
    for start in range(0, 60, 10):
        stream.query.add_batch([start, start + 1])
    stream.query.add_batch([100], [], [101, 102], [103])
    stream.query.add_batch()
    stream.end()

    parts = [rows_of(stream.reader(split)) for split in stream.splits]

    found = sorted(n for part in parts for _, rows in part for n in rows)
    assert found == [0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51, *range(100, 104)]
    assert all(parts)
    stream.source.release()


def test_reading_from_any_offset_gives_what_was_left(tmp_path: Path) -> None:
    """That is what makes the stream replayable."""
    stream = Stream(tmp_path, 1)
    stream.query.add_batch([1, 2, 3], [4])
    stream.query.add_batch([5], [6, 7])
    stream.end()
    (split,) = stream.splits

    whole = rows_of(stream.reader(split))
    for index, (offset, _) in enumerate(whole):
        assert rows_of(stream.reader(split, offset)) == whole[index + 1 :]

    assert [rows for _, rows in rows_of(stream.reader(split, 1))][:2] == [[2, 3], [4]]
    stream.source.release()


def test_a_reader_waits_while_the_query_runs(tmp_path: Path) -> None:
    """Nothing for now is not the end."""
    stream = Stream(tmp_path, 1)
    reader = stream.reader(stream.splits[0])
    empty = reader.read(10)
    assert empty is not None
    assert len(empty) == 0

    stream.query.add_batch([1])
    stream.end()

    assert [rows for _, rows in rows_of(reader)] == [[1]]
    stream.source.release()


def test_a_query_that_died_is_an_error_after_its_last_row(tmp_path: Path) -> None:
    """What it had listed is good; what is missing must not go unnoticed."""
    stream = Stream(tmp_path, 1)
    stream.query.add_batch([1])
    stream.query.error = ValueError(
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
        "[PATH_NOT_FOUND] no such file. SQLSTATE: 42K03 SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nIdentifier: [id = 1]"
    )
    stream.end()
    reader = stream.reader(stream.splits[0])
    first = reader.read(10)
    assert first is not None
    assert len(first) == 1

    with pytest.raises(RuntimeError) as caught:
        rows_of(reader)

    assert str(caught.value) == (
        "Spark's streaming query ended after 1 batches ([PATH_NOT_FOUND] no such file); "
        "mend the query and run the flow again"
    )
    stream.source.release()


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    """Its length was listed with it."""
    stream = Stream(tmp_path, 1)
    stream.query.add_batch([1, 2, 3])
    (file,) = stream.query.directory.listed(0) or []
    file.path.write_bytes(file.path.read_bytes()[:-1])

    with pytest.raises(ValueError, match="bytes and was listed with"):
        stream.reader(stream.splits[0]).read(10)
    stream.source.release()


def test_release_stops_the_query_and_removes_its_files(tmp_path: Path) -> None:
    """Whether anybody has read them or not; and once is enough."""
    stream = Stream(tmp_path, 2)
    stream.query.add_batch([1])

    stream.source.release()
    stream.source.release()

    assert stream.query._is_over.is_set()
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_does_not_start_is_one_sentence(tmp_path: Path) -> None:
    """Spark checks some things only then."""

    def refuse(directory: str, part_count: int) -> Never:
        msg = "[NO] aggregates need a watermark. SQLSTATE: 42\nplan"
        raise ValueError(msg)

    source = SparkStreamSource(refuse, SCHEMA, str(tmp_path))
    with pytest.raises(
        OperationalError,
        match=r"could not start .* \(\[NO\] aggregates need a watermark\); mend",
    ):
        source.splits(1)
    source.release()

    assert list(tmp_path.iterdir()) == []


def test_a_job_that_starts_again_starts_another_query(tmp_path: Path) -> None:
    """The first one is not left running."""
    stream = Stream(tmp_path, 1)
    stream.source.splits(1)

    first, second = stream.queries
    assert first._is_over.is_set()
    assert not second._is_over.is_set()
    stream.source.release()


def test_a_worker_that_does_not_see_the_directory_says_so(tmp_path: Path) -> None:
    """Otherwise it would wait for lists for ever."""
    stream = Stream(tmp_path, 1)
    stream.source._staging.path = "/no/such"

    with pytest.raises(FileNotFoundError, match="name a staging= directory"):
        stream.reader(stream.splits[0])
    stream.source._staging.path = str(stream.query.directory.path)
    stream.source.release()


def test_a_later_run_reads_what_was_staged_and_what_comes(tmp_path: Path) -> None:
    """The query goes on at its checkpoint, the reader at its offset, in the same splits."""
    first = Stream(tmp_path, 2, kept="job")
    first.query.add_batch([1, 2])
    first.query.add_batch([3], [4])
    reader = first.reader(first.splits[0])
    assert reader.read(10) is not None
    offset = reader.offset
    first.source.suspend()

    second = Stream(tmp_path, 5, kept="job", before=first)
    second.query.add_batch([5])
    second.end()

    assert second.part_counts == [2], "as it was cut before"
    left = [rows for _, rows in rows_of(second.reader(second.splits[0], offset))]
    other = [rows for _, rows in rows_of(second.reader(second.splits[1]))]
    assert sorted(n for rows in left + other for n in rows) == [3, 4, 5]
    second.source.release()
    assert list(tmp_path.iterdir()) == [], "a complete job leaves nothing"


def test_a_run_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    """Nobody stopped the query or closed the directory, and twice in a row is no worse."""
    first = Stream(tmp_path, 1, kept="job")
    first.query.add_batch([1])
    second = Stream(tmp_path, 1, kept="job", before=first)
    second.query.add_batch([2])
    third = Stream(tmp_path, 1, kept="job", before=second)
    third.query.add_batch([3])
    third.end()

    assert [rows for _, rows in rows_of(third.reader(third.splits[0]))] == [
        [1],
        [2],
        [3],
    ]
    for stream in (first, second, third):
        stream.source.release()


def test_only_what_every_split_is_behind_is_removed(tmp_path: Path) -> None:
    """A snapshot that is kept may need the rest; how far the query came stays known."""
    stream = Stream(tmp_path, 2, kept="job")
    for number in range(4):
        stream.query.add_batch([number], [number + 10])
    one, two = (split.name for split in stream.splits)
    staged = BatchDirectory(stream.query.directory.path)

    def places() -> list[str]:
        return sorted(p.name[0] for p in (staged.path / "batches").iterdir())

    stream.source.forget({one: 3 * 2**40})
    assert places() == ["0", "1", "2", "3"], "the other may be read from the beginning"
    stream.source.forget({one: 3 * 2**40, two: 2 * 2**40 + 1})
    assert places() == ["2", "3"]
    stream.source.forget({one: None, two: None})
    assert places() == []
    assert staged.listed(3) is not None, "Spark may come back to its last batch"
    stream.end()
    end = staged.end()
    assert end is not None
    assert end.batch_count == 4
    stream.source.release()


def test_a_job_that_begins_anew_finds_nothing_of_one_that_never_began(
    tmp_path: Path,
) -> None:
    """It had no snapshot, so its query begins anew too."""
    first = Stream(tmp_path, 1, kept="job")
    first.query.add_batch([1])
    first.source.suspend()

    second = Stream(tmp_path, 1, kept="job")
    second.end()

    assert rows_of(second.reader(second.splits[0])) == []
    second.source.release()


def test_what_is_staged_elsewhere_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """A savepoint does not hold the query, so another state directory cannot go on."""
    first = Stream(tmp_path, 1, kept="job")
    with pytest.raises(
        SnapshotError, match=r"are not at .*millstream-staged-other; go on"
    ):
        Stream(tmp_path, 1, kept="other", before=first)
    first.source.release()


def test_state_that_is_on_no_file_system_needs_a_staging_directory() -> None:
    """Spark cannot stage in an object store that only Millstream writes to."""
    source = SparkStreamSource(
        lambda directory, _parts: ScriptedQuery(directory), SCHEMA
    )
    source.keep_in(None, "job")
    with pytest.raises(UsageError, match="pass staging='a/directory'"):
        source.splits(1)


def test_without_a_state_directory_what_was_read_is_removed(tmp_path: Path) -> None:
    """A stream goes on for weeks; nobody goes back."""
    stream = Stream(tmp_path, 1)
    staged = stream.query.directory
    for number in range(3):
        stream.query.add_batch([number])
    reader = stream.reader(stream.splits[0])
    for _ in range(4):
        reader.read(10)
    staged.forget_read(1)

    assert [p.name[0] for p in (staged.path / "batches").iterdir()] == ["2"]
    stream.source.release()
