"""Part files that roll: few and large, every row in one of them once."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.sinking import sealed

import millstream as ms
from millstream.config import byte_count
from millstream.connectors.base import Later
from millstream.connectors.csv import CsvDialect, CsvSink
from millstream.connectors.files import TextSink
from millstream.connectors.parquet import ParquetSink
from millstream.connectors.parts import PartsWriter
from millstream.state.plain import decode, encode

if TYPE_CHECKING:
    from pathlib import Path

JOB = "job-1"
SECOND = 1_000_000_000


class Clock:
    """Time that the test sets."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def parts(directory: Path) -> dict[str, str]:
    found = sorted(directory.glob("part-*"), key=lambda path: path.stem)
    return {path.name: path.read_text().replace("\n", " ").strip() for path in found}


def staged(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob(".millstream-*/part-*"))


def opened(
    sink: Any, clock: Clock, task: int = 0, generation: int = 1, kept: Any = ()
) -> Any:
    """Return a writer that goes on from what others kept, as a snapshot stores it."""
    writer = PartsWriter(sink, JOB, task, clock)
    writer.generation = generation
    if kept:
        writer.take_back(decode(encode(list(kept))))
    return writer


def commit(sink: Any, epoch: int, transaction: Any) -> None:
    """Commit what a task has to show, if there is anything."""
    sink.commit(JOB, epoch, [] if transaction is None else [transaction])


def test_a_part_is_rolled_by_time_and_by_size(tmp_path: Path) -> None:
    """Until then its rows wait, and a cut without rows changes nothing."""
    clock = Clock()
    sink = TextSink(tmp_path, name="out", roll="10B", roll_every="5s")
    sink.prepare(JOB)
    with closing(opened(sink, clock)) as writer:
        for epoch, row in enumerate(["a", "b", "", "c", "large row", "d"], 1):
            clock.now_ns += 2 * SECOND
            writer.write([row] if row else [])
            commit(sink, epoch, sealed(writer, epoch, rolls=False))
        held = staged(tmp_path)
        commit(sink, 7, sealed(writer, 7))

    assert parts(tmp_path) == {
        "part-out-00000-000004.txt": "a b c",
        "part-out-00000-000005.txt": "large row",
        "part-out-00000-000007.txt": "d",
    }
    assert len(held) == 1
    assert staged(tmp_path) == []


def test_one_epoch_makes_as_many_parts_as_its_rows_need(tmp_path: Path) -> None:
    """A job without snapshots has one epoch, however much it writes."""
    sink = TextSink(tmp_path, roll="4B")
    sink.prepare(JOB)
    with closing(opened(sink, Clock())) as writer:
        for row in ("aaa", "bbb", "c"):
            writer.write([row])
        commit(sink, 1, sealed(writer, 1))

    assert parts(tmp_path) == {
        "part-00000.txt": "aaa",
        "part-00000-000001-0001.txt": "bbb",
        "part-00000-000001-0002.txt": "c",
    }


def test_what_is_held_goes_on_in_another_generation_and_at_another_width(
    tmp_path: Path,
) -> None:
    """Rows and age are the snapshot's; what older generations left besides goes."""
    clock = Clock()
    sink = TextSink(tmp_path, name="out", roll_every="5s")
    sink.prepare(JOB)
    kept = []
    for task, row in enumerate("ab"):
        with closing(opened(sink, clock, task)) as writer:
            writer.write([row])
            commit(sink, 1, sealed(writer, 1, rolls=False))
            clock.now_ns += 3 * SECOND
            kept.append(writer.kept())
            writer.write(["lost, as nothing was sealed after it"])
            sealed(writer, 2)
    assert len(staged(tmp_path)) == 6

    with closing(opened(sink, clock, generation=2, kept=kept)) as writer:
        clock.now_ns += SECOND
        writer.write(["c"])
        commit(sink, 3, sealed(writer, 3, rolls=False))
        still_held = staged(tmp_path)
        clock.now_ns += SECOND
        commit(sink, 4, sealed(writer, 4, rolls=False))

    assert len(still_held) == 3
    assert parts(tmp_path) == {"part-out-00000-000004.txt": "a b c"}
    assert staged(tmp_path) == []


def test_a_roll_that_no_snapshot_has_can_be_done_again(tmp_path: Path) -> None:
    """The pieces stay until the commit: the job may go back behind the roll."""
    clock = Clock()
    sink = TextSink(tmp_path, name="out")
    sink.prepare(JOB)
    with closing(opened(sink, clock)) as writer:
        for epoch, row in enumerate("ab", 1):
            writer.write([row])
            commit(sink, epoch, sealed(writer, epoch, rolls=False))
        kept = writer.kept()
        sealed(writer, 3)
    with closing(opened(sink, clock, generation=2, kept=[kept])) as writer:
        commit(sink, 3, sealed(writer, 3))

    assert parts(tmp_path) == {"part-out-00000-000003.txt": "a b"}
    assert staged(tmp_path) == []


def test_a_job_that_goes_on_from_a_copy_takes_nothing_from_the_first(
    tmp_path: Path,
) -> None:
    """Its rows are copied to where it writes; the first job may go on as well."""
    first, second = TextSink(tmp_path / "one"), TextSink(tmp_path / "two")
    first.prepare(JOB)
    second.prepare("other-1")
    with closing(opened(first, Clock())) as writer:
        writer.write(["a"])
        sealed(writer, 1, rolls=False)
        kept = writer.kept()
    writer = PartsWriter(second, "other-1", 0)
    writer.take_back([kept])
    second.commit("other-1", 2, [sealed(writer, 2)])
    with closing(opened(first, Clock(), generation=2, kept=[kept])) as writer:
        commit(first, 2, sealed(writer, 2))

    assert list(parts(tmp_path / "one").values()) == ["a"]
    assert list(parts(tmp_path / "two").values()) == ["a"]


def test_merged_parts_have_one_header_and_all_types(tmp_path: Path) -> None:
    """A file of many pieces is like one that was written at once."""
    schema = pl.Schema({"n": pl.Int64(), "s": pl.Categorical()})
    frames = [pl.DataFrame({"n": [n], "s": [str(n)]}, schema=schema) for n in range(3)]
    csv = CsvSink(tmp_path / "csv", schema, CsvDialect(",", '"', has_header=True))
    parquet = ParquetSink(tmp_path / "parquet", schema)
    for sink in (csv, parquet):
        sink.prepare(JOB)
        with closing(opened(sink, Clock())) as writer:
            for epoch, frame in enumerate(frames, 1):
                writer.write(frame)
                commit(sink, epoch, sealed(writer, epoch, rolls=epoch == 3))

    assert list(parts(tmp_path / "csv").values()) == ["n,s 0,0 1,1 2,2"]
    (part,) = (tmp_path / "parquet").glob("part-*")
    assert pl.read_parquet(part).equals(pl.concat(frames))


def test_an_output_without_rows_has_one_part_with_its_schema(tmp_path: Path) -> None:
    """It appears at the end; a quiet stream shows no empty file before."""
    schema = pl.Schema({"n": pl.Int64})
    sink = ParquetSink(tmp_path, schema, roll_every="0s")
    sink.prepare(JOB)
    with closing(opened(sink, Clock())) as writer:
        assert [writer.seal(epoch) for epoch in (1, 2)] == [None, None]
        kept = writer.kept()
    with closing(opened(sink, Clock(), generation=2, kept=[kept])) as writer:
        commit(sink, 3, sealed(writer, 3))

    (part,) = tmp_path.glob("part-*")
    assert pl.read_parquet(part).schema == schema


def test_a_seal_touches_no_disk_before_it_is_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task stands still at a cut, so it waits for no sync there."""
    sink = TextSink(tmp_path)
    sink.prepare(JOB)
    with closing(opened(sink, Clock())) as writer:
        writer.write(["a"])
        synced: list[int] = []
        monkeypatch.setattr("os.fsync", synced.append)
        monkeypatch.setattr("os.write", lambda *_: pytest.fail("wrote in the cut"))
        later = writer.seal(1)
        assert isinstance(later, Later)
        assert synced == []
        monkeypatch.undo()
        monkeypatch.setattr("os.fsync", synced.append)
        later.work()

    assert len(synced) == 2  # the file and its directory


@pytest.mark.parametrize("roll", ["", "12 elephants", "-1", True])
def test_a_size_that_is_none_is_refused(tmp_path: Path, roll: Any) -> None:
    """What a size looks like is said in one sentence."""
    rows = ms.Flow("sizes").from_iterable(["a"])
    with pytest.raises(ms.UsageError, match="for example '128MB'"):
        rows.write_text(tmp_path, roll=roll)


def test_sizes_are_decimal_or_binary_as_they_say() -> None:
    """A disk's megabyte is not a memory's."""
    sizes = {"1kB": 1000, "1.5 MB": 1_500_000, "2GiB": 2 << 30, "7": 7, "1KiB": 1024}
    assert {text: byte_count(text) for text in sizes} == sizes
