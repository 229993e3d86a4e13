"""Malformed rows: one sentence without a budget, a frame of their own within one."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.examples import mostly_slow

import millstream as ms
from millstream.config import Config
from millstream.connectors import line_numbers
from millstream.connectors.bad_rows import MalformedError, bad_part, good_part
from millstream.connectors.base import Split
from millstream.connectors.csv import CsvDialect, CsvFormat
from millstream.connectors.frame_files import ByteRange, LineFrames
from millstream.connectors.text_frame import TextFormat

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = {"n": pl.Int64, "s": pl.String}

BAD_CSV = {
    "too few fields": b"2",
    "too many fields": b"2,b,c",
    "another type": b"two,b",
    "open quote": b'2,"b',
    "text behind a quote": b'2,"b"c',
    "not UTF-8": b"2,\xff",
}
BAD_JSON = {
    "no JSON": b'{"n": 2',
    "no object": b"[2]",
    "another type": b'{"n": "two"}',
    "not UTF-8": b'{"s": "\xff"}',
    "two objects": b'{"n": 2} {"n": 3}',
}
CASES = [
    *[pytest.param("csv", line, id=f"csv {why}") for why, line in BAD_CSV.items()],
    *[pytest.param("jsonl", line, id=f"jsonl {why}") for why, line in BAD_JSON.items()],
    pytest.param("lines", b"\xff", id="lines not UTF-8"),
]
GOOD = {"csv": b"1,a", "jsonl": b'{"n":1,"s":"a"}', "lines": b"x"}


def frame_of(flow: ms.Flow, path: Path, kind: str, **options: Any) -> Any:
    if kind == "lines":
        return flow.read_lines(path, **options)
    if kind == "csv":
        options["header"] = False
    return getattr(flow, f"read_{kind}")(path, schema=SCHEMA, **options)


def written(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@pytest.mark.parametrize(("kind", "bad"), CASES)
def test_a_bad_row_fails_the_job_and_is_named(
    tmp_path: Path, kind: str, bad: bytes
) -> None:
    """The sentence has the file, the line's number, its first byte and its text."""
    good = GOOD[kind]
    path = written(tmp_path / "a.x", good, good, bad, good)
    flow = ms.Flow("bad")
    frame_of(flow, path, kind).collect()
    at = 2 * len(good) + 2

    with pytest.raises(
        ms.OperatorError, match=rf"line 3 \(byte {at}\) of .*a\.x is malformed"
    ):
        flow.run(on="local", workers=2)


@pytest.mark.parametrize(("kind", "bad"), CASES)
def test_bad_rows_within_the_budget_are_left_out_and_kept_aside(
    tmp_path: Path, kind: str, bad: bytes
) -> None:
    """Their neighbors are all read."""
    good = GOOD[kind]
    path = written(tmp_path / "a.x", good, bad, good, bad, good)
    flow = ms.Flow("bad")
    frame = frame_of(flow, path, kind, max_bad_rows=2)
    rows, aside = frame.collect(), frame.bad_rows.collect()
    flow.run(on="local", workers=2)

    first, second = len(good) + 1, 2 * len(good) + len(bad) + 3
    assert rows.result().height == 3
    assert rows.result().n_unique() == 1
    assert aside.result()["file"].to_list() == [str(path)] * 2
    assert aside.result()["line"].to_list() == [2, 4]
    assert aside.result()["offset"].to_list() == [first, second]
    line = bad.decode("utf-8", "backslashreplace")
    assert aside.result()["text"].to_list() == [line] * 2
    assert all(aside.result()["cause"])


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
@pytest.mark.parametrize("kind", GOOD)
def test_bad_rows_of_a_file_that_many_tasks_read_come_once_with_their_lines(
    tmp_path: Path, kind: str, workers: int
) -> None:
    """A task that reads from the middle of a file still knows the numbers of lines."""
    lines = [GOOD[kind].replace(b"a", b"a" * 20).replace(b"x", b"x" * 20)] * 150_000
    bad = {"csv": b"x,y", "jsonl": b'{"n": 2', "lines": b"\xff"}[kind]
    places = [1, 2, 77_777, 77_778, 122_222, 149_999, 150_000]
    for place in places:
        lines[place - 1] = bad
    path = written(tmp_path / "a.x", *lines)
    flow = ms.Flow("bad")
    frame = frame_of(flow, path, kind, max_bad_rows=len(places))
    aside = frame.bad_rows.collect()
    frame.collect()
    flow.run(on="local", workers=workers)

    content = path.read_bytes()
    found = aside.result().sort("line")
    assert found["line"].to_list() == places
    assert all(content[at:].startswith(bad) for at in found["offset"])
    assert found["offset"].n_unique() == len(places)


def test_a_reader_gives_nothing_while_it_counts_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset stays, so that a snapshot in between loses neither good nor bad rows."""
    monkeypatch.setattr(line_numbers, "_BYTES_PER_TURN", 1)
    path = written(tmp_path / "a.txt", b"one", b"two", b"three", b"\xff", b"four")
    source = LineFrames([str(path)], TextFormat(), max_bad_rows=1)
    split = Split("part", ByteRange(str(path), 6, 21, 21))
    with closing(source.open(split, 0, Config())) as reader:
        frames: list[Any] = [reader.read(1)]
        while reader.offset == 8:
            assert frames[-1].is_empty()
            frames.append(reader.read(1))

    assert len(frames) == 8
    assert good_part(frames[-1])["line"].to_list() == ["three", "four"]
    assert bad_part(frames[-1])["line"].to_list() == [4]


def test_the_text_of_a_bad_row_is_kept_whole_up_to_a_limit(tmp_path: Path) -> None:
    """Whoever mends rows needs all of it; a gigabyte of nonsense helps nobody."""
    path = written(tmp_path / "a.csv", b"x" * 5_000, b"y" * 100_000)
    flow = ms.Flow("bad")
    frame = frame_of(flow, path, "csv", max_bad_rows=2)
    texts = frame.bad_rows.collect()
    frame.collect()
    flow.run(on="local", workers=1)

    assert texts.result()["text"].to_list() == ["x" * 5_000, "y" * 65_536]


def test_the_line_of_a_bad_record_of_many_lines_is_its_first(tmp_path: Path) -> None:
    """That is where one looks."""
    path = written(tmp_path / "a.csv", b'1,"a\nb"', b'two,"c\nd"', b"3,e")
    flow = ms.Flow("bad")
    frame = frame_of(flow, path, "csv", max_bad_rows=1, multiline=True)
    aside = frame.bad_rows.select("line", "offset", "text").collect()
    frame.collect()
    flow.run(on="local", workers=1)

    assert aside.result().rows() == [(3, 8, 'two,"c\nd"')]


def test_the_budget_holds_for_all_files_together(tmp_path: Path) -> None:
    """No single reader sees more bad rows than allowed, but the job does."""
    for number in range(4):
        written(tmp_path / f"{number}.csv", b"1,a", b"x,y")
    flow = ms.Flow("bad")
    frame_of(flow, tmp_path, "csv", max_bad_rows=3).collect()

    with pytest.raises(ms.OperatorError, match="more than max_bad_rows=3 malformed"):
        flow.run(on="local", workers=2)


def test_a_budget_as_large_as_needed_is_enough(tmp_path: Path) -> None:
    """The limit is the number of rows that may be bad."""
    for number in range(4):
        written(tmp_path / f"{number}.csv", b"1,a", b"x,y")
    flow = ms.Flow("bad")
    rows = frame_of(flow, tmp_path, "csv", max_bad_rows=4).collect()
    flow.run(on="local", workers=2)

    assert rows.result().rows() == [(1, "a")] * 4


def test_bad_rows_can_be_written_like_any_frame(tmp_path: Path) -> None:
    """They travel through the flow as rows do."""
    path = written(tmp_path / "a.csv", b"1,a", b"x,y")
    flow = ms.Flow("bad")
    frame = frame_of(flow, path, "csv", max_bad_rows=4)
    frame.collect()
    texts = frame.bad_rows.select("text", "offset").to_rows().collect()
    flow.run(on="local", workers=3)

    assert texts.result() == [{"text": "x,y", "offset": 4}]


def test_without_a_budget_there_are_no_bad_rows_to_ask_for(tmp_path: Path) -> None:
    """Asking says what to pass."""
    frame = frame_of(ms.Flow("bad"), written(tmp_path / "a", b"1,a"), "csv")

    with pytest.raises(ms.UsageError, match="pass max_bad_rows="):
        _ = frame.bad_rows


def test_a_negative_budget_is_refused(tmp_path: Path) -> None:
    """A number of rows is not negative."""
    with pytest.raises(ms.UsageError, match="max_bad_rows, got -1"):
        ms.Flow("bad").read_lines(written(tmp_path / "a"), max_bad_rows=-1)


def test_a_long_bad_line_is_cut_short(tmp_path: Path) -> None:
    """An error message stays readable."""
    path = written(tmp_path / "a.csv", b"x" * 5_000)
    flow = ms.Flow("bad")
    frame_of(flow, path, "csv").collect()

    with pytest.raises(ms.OperatorError) as caught:
        flow.run(on="local", workers=1)

    assert "x" * 200 + "…" in str(caught.value)
    assert "x" * 201 not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b'1,"a,b",c\n2,d\n',
        b'1,"a,b"\n2,d,e\n',
        b'1,a,b\n2,"x,y,z"\n3,,\n',
        b'1,"a\n2,b",c\n3,d,e\n',
    ],
)
def test_separators_in_quotes_do_not_hide_a_short_row(data: bytes) -> None:
    """Quoted separators are not counted for missing fields."""
    schema = pl.Schema({"n": pl.Int64, "s": pl.String, "t": pl.String})

    with pytest.raises(MalformedError):
        CsvFormat(schema, CsvDialect()).parse(data)
