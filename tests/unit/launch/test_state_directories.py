"""Whose a state directory is, what it may hold besides, and who can read it."""

from __future__ import annotations

import copy
import itertools
import logging
import os
import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms
from millstream.connectors.frame import DataFrameSource
from millstream.connectors.iterable import IterableSource
from millstream.errors import JobCancelledError, SnapshotError
from millstream.state.files import files_at, refuse_strangers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Read = Callable[[ms.Flow, Any], Any]


def run(tmp_path: Path, read: Read, given: Any, name: str = "daily") -> Any:
    """Return what a flow collects that works on one state directory."""
    flow = ms.Flow(name)
    rows = read(flow, given).collect(name="out")
    flow.run(on="local", state=tmp_path / "state")
    result = rows.result()
    return result.rows() if isinstance(result, pl.DataFrame) else result


def text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


# Whose it is


def test_a_directory_belongs_to_a_flow_by_name(tmp_path: Path) -> None:
    """Another flow would succeed without having read anything."""
    read: Read = lambda flow, rows: flow.from_iterable(rows, name="in")  # noqa: E731
    run(tmp_path, read, [1, 2])

    with pytest.raises(SnapshotError, match=r"belongs to the flow 'daily' .* 'weekly'"):
        run(tmp_path, read, [1, 2], name="weekly")

    assert run(tmp_path, read, [1, 2]) == [1, 2]


def test_another_flow_may_begin_with_a_copy(tmp_path: Path) -> None:
    """The way out that the message names."""
    read: Read = lambda flow, rows: flow.from_iterable(rows, name="in")  # noqa: E731
    run(tmp_path, read, [1, 2])
    flow = ms.Flow("weekly")
    rows = read(flow, [1, 2]).collect(name="out")

    flow.run(on="local", resume_from=tmp_path / "state", state=tmp_path / "other")

    assert rows.result() == [1, 2]


READERS: dict[str, tuple[Read, Callable[[Path], tuple[Any, Any]]]] = {
    "text": (
        lambda flow, path: flow.read_text(path, name="in"),
        lambda tmp: (text(tmp / "in/mon.txt", "a"), text(tmp / "in/tue.txt", "b")),
    ),
    "glob": (
        lambda flow, path: flow.read_text(path, name="in"),
        lambda tmp: (
            text(tmp / "in/mon/a.txt", "a").parent / "*.txt",
            text(tmp / "in/tue/a.txt", "b").parent / "*.txt",
        ),
    ),
    "csv": (
        lambda flow, path: flow.read_csv(path, name="in"),
        lambda tmp: (
            text(tmp / "in/m.csv", "x", "1"),
            text(tmp / "in/t.csv", "x", "2"),
        ),
    ),
    "parquet": (
        lambda flow, path: flow.read_parquet(path, name="in"),
        lambda tmp: (parquet(tmp / "mon.parquet", 1), parquet(tmp / "tue.parquet", 2)),
    ),
    "longer list": (
        lambda flow, rows: flow.from_iterable(rows, name="in"),
        lambda _: ([1, 2], [1, 2, 3]),
    ),
    "other list of the same length": (
        lambda flow, rows: flow.from_iterable(rows, name="in"),
        lambda _: ([("a", 1)], [("b", 1)]),
    ),
    "data frame": (
        lambda flow, frame: flow.from_frame(frame, name="in"),
        lambda _: (pl.DataFrame({"x": [1]}), pl.DataFrame({"x": [2]})),
    ),
}


def parquet(path: Path, value: int) -> Path:
    pl.DataFrame({"x": [value]}).write_parquet(path)
    return path


@pytest.mark.parametrize("kind", READERS)
def test_a_directory_belongs_to_what_its_sources_were_asked_to_read(
    kind: str, tmp_path: Path
) -> None:
    """Offsets of Monday's input would skip Tuesday's."""
    read, make = READERS[kind]
    monday, tuesday = make(tmp_path)
    first = run(tmp_path, read, monday)

    with pytest.raises(
        SnapshotError, match=r"source 'in' read .* it reads .*new\s+state"
    ):
        run(tmp_path, read, tuesday)

    assert run(tmp_path, read, monday) == first


@pytest.mark.parametrize("name", ["daily", "daily of Tuesday"])
def test_refused_input_leaves_sinks_untouched(tmp_path: Path, name: str) -> None:
    """Neither Tuesday's directory nor a row of Tuesday's beside those of Monday."""
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute("CREATE TABLE t (day TEXT, word TEXT)")

    def write(day: str, *words: str, name: str = "daily") -> None:
        flow = ms.Flow(name)
        lines = flow.read_text(text(tmp_path / f"in/{day}.txt", *words), name="in")
        lines.write_text(tmp_path / "out" / day, name="texts")
        rows = lines.map(lambda word: (day, word), name="rows")
        rows.write_sqlite(tmp_path / "t.db", "t", columns=["day", "word"], name="table")
        flow.run(on="local", state=tmp_path / "state")

    write("mon", "a", "b")
    with pytest.raises(SnapshotError):
        write("tue", "x", "y", "z", name=name)

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mon"]
    parts = (tmp_path / "out/mon").glob("part-*")
    assert [part.read_text() for part in parts] == ["a\nb\n"]
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        found = database.execute("SELECT * FROM t ORDER BY word").fetchall()
    assert found == [("mon", "a"), ("mon", "b")]


def test_the_same_input_is_the_same_in_every_process() -> None:
    """A job goes on in another process, with other hashes and other addresses."""
    rows: list[Any] = [("a", 1, 2.5, None, b"x"), {"k": [1, 2]}, "text"] * 50
    copied = copy.deepcopy(rows)
    frame = pl.DataFrame({"x": [1, None, 3], "s": ["a", "b", None]})

    assert IterableSource(rows).identity() == IterableSource(copied).identity()
    assert (
        IterableSource({"b", "a"}).identity() == IterableSource(["a", "b"]).identity()
    )
    assert (
        DataFrameSource(frame).identity() == DataFrameSource(frame.clone()).identity()
    )
    assert IterableSource([object()]).identity() == "1 items"
    assert IterableSource(lambda: [1]).identity() == ""


def test_files_that_come_or_grow_later_are_named_and_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A pattern is the same input, whatever it names by now; but nobody is left guessing."""
    text(tmp_path / "in/a.txt", "1")
    text(tmp_path / "in/empty.txt")
    read: Read = lambda flow, path: flow.read_text(path, name="in")  # noqa: E731
    assert run(tmp_path, read, tmp_path / "in") == ["1"]

    text(tmp_path / "in/a.txt", "1", "2")
    text(tmp_path / "in/b.txt", "3")
    with caplog.at_level(logging.WARNING, logger="millstream.state"):
        assert run(tmp_path, read, tmp_path / "in") == ["1"]

    assert "b.txt came after the job had begun and will not be read" in caplog.text
    assert "a.txt has 4 bytes and had 2 when the job began" in caplog.text
    assert "empty.txt" not in caplog.text


# What it may hold


@pytest.mark.parametrize("is_url", [False, True])
def test_state_is_not_mixed_with_files_of_others(
    tmp_path: Path, *, is_url: bool
) -> None:
    """A directory of input or output is nobody's state."""
    text(tmp_path / "clicks/a.txt", "1")
    place = f"file://{tmp_path}/clicks" if is_url else tmp_path / "clicks"
    flow = ms.Flow("mixed")
    flow.from_iterable([1]).for_each(id)

    with pytest.raises(SnapshotError, match=r"holds no snapshots \(it has a\.txt\)"):
        flow.run(on="local", state=place)

    assert [path.name for path in (tmp_path / "clicks").iterdir()] == ["a.txt"]


def test_a_store_is_looked_at_as_a_directory_is() -> None:
    """Also where there are no directories."""
    place = "memory://strangers/job"
    files = files_at(place)
    refuse_strangers(files, "the state of a job")
    files.create("clicks", [b"1"])

    with pytest.raises(SnapshotError, match=r"it has clicks\); name a new or an empty"):
        refuse_strangers(files, "the state of a job")


def test_a_directory_of_ones_own_may_have_notes_in_it(tmp_path: Path) -> None:
    """What is known to hold snapshots is not lost by a note that lies beside them."""
    read: Read = lambda flow, rows: flow.from_iterable(rows, name="in")  # noqa: E731
    (tmp_path / "state").mkdir()
    (tmp_path / "state/lost+found").mkdir()
    (tmp_path / "state/.nfs0001").touch()
    run(tmp_path, read, [1])
    text(tmp_path / "state/README", "mine")

    assert run(tmp_path, read, [1]) == [1]


def test_a_savepoint_is_not_written_among_files_of_others(tmp_path: Path) -> None:
    """The output directory of a job is a likely slip."""
    text(tmp_path / "out/part-0.txt", "1")
    flow = ms.Flow("savepoint")
    flow.from_iterable(itertools.count).for_each(id)
    job = flow.start(on="local", state=tmp_path / "state")
    try:
        with pytest.raises(
            SnapshotError, match=r"it has part-0\.txt\); .* a savepoint"
        ):
            job.savepoint(tmp_path / "out")
        with pytest.raises(SnapshotError, match="no savepoint can be written to"):
            job.savepoint(tmp_path / "out/part-0.txt/below")
    finally:
        job.cancel()
        with pytest.raises(JobCancelledError):
            job.wait()

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["part-0.txt"]


# Who can read it


def test_what_is_stored_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """It is the user's data, as much as the key is; output is for others to read."""
    before = os.umask(0o022)
    try:
        flow = ms.Flow("private")
        rows = flow.from_iterable(["a", "b"])
        rows.group_by(str).count().collect()
        rows.write_text(tmp_path / "out")
        flow.run(on="local", state=tmp_path / "below/state")
        again = ms.Flow("again")
        again.from_iterable([1], name="in").for_each(id)
        again.run(
            on="local",
            resume_from=tmp_path / "below/state",
            state=tmp_path / "copy",
            drop_state=True,
        )
    finally:
        os.umask(before)

    for root in (tmp_path / "below/state", tmp_path / "copy"):
        found = [root, *root.rglob("*")]
        assert any(path.suffix == ".state" for path in found)
        assert {_mode(path) for path in found if path.is_dir()} == {0o700}
        assert {_mode(path) for path in found if path.is_file()} == {0o600}
    parts = [path for path in (tmp_path / "out").iterdir() if path.is_file()]
    assert {_mode(path) for path in parts} == {0o644}
    assert _mode(tmp_path / "out") == 0o755
    assert _mode(tmp_path / "below") == 0o755


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
