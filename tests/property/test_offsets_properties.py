"""Every source: a reader opened at an offset that was reported gives exactly the rest.

Method: Hypothesis draws the content of a source, cuts it into splits, and reads each split
with a reader of any batch size.  At every offset that it reports - before the first read,
after each read, also one that gave nothing, and at the end - a second reader with another
batch size is opened.  What was returned before and what the second one returns must be
what an undisturbed reader returns, in the same order, good and malformed rows each.

Snapshots rely on this: they keep offsets, and nothing else of a reader.
"""

from __future__ import annotations

import io
import pickle
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.config import Config, fixed
from millstream.connectors.base import Split
from millstream.connectors.csv import CsvDialect, CsvFormat
from millstream.connectors.frame import DataFrameSource
from millstream.connectors.frame_files import ByteRange, LineFrames
from millstream.connectors.iterable import IterableSource, ParallelSource
from millstream.connectors.jsonl import JsonFormat
from millstream.connectors.parquet import ParquetSource
from millstream.connectors.text import TextSource
from millstream.connectors.text_frame import TextFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.connectors.base import Source

SCHEMA = pl.Schema({"n": pl.Int64, "s": pl.String})
CONFIGS = st.builds(
    lambda block, rows: replace(
        Config(), source_block_bytes=block, frame_buffer=fixed(rows)
    ),
    st.integers(1, 30),
    st.integers(1, 6),
)
READ_ROWS = st.integers(1, 7)

TEXT_LINES = ["", "a", "é\u2028", "\r", "two words", "x" * 40]
CSV_LINES = ["1,a", "2,", '3,"b,c"', "4,d\r", "", "bad,e", "5", "6,f,g", '7,"h']
MULTILINE = ["1,a", '2,"b\nc"', '3,"\n\n"', "bad,d", '4,"e""\nf"']
JSON_LINES = ['{"n":1,"s":"a"}', '{"n":2}', "{}", "", '{"n":"x"}', '{"n":', "[1]"]


def contents(lines: list[str]) -> st.SearchStrategy[bytes]:
    """Files of these lines, with or without a byte order mark and a last newline."""
    return st.tuples(
        st.sampled_from(["", "\ufeff"]),
        st.lists(st.sampled_from(lines), max_size=12).map("\n".join),
        st.sampled_from(["", "\n"]),
    ).map(lambda parts: "".join(parts).encode())


def rows_in(batch: Any) -> list[Any]:
    return batch if isinstance(batch, list) else batch.rows()


def rest(
    source: Source[Any], split: Split, offset: int, config: Config, rows: int
) -> list[Any]:
    """Return all rows of a new reader."""
    with closing(source.open(split, offset, config)) as reader:
        return [row for batch in batches(reader, rows) for row in rows_in(batch)]


def batches(reader: Any, rows: int) -> Iterator[Any]:
    while (batch := reader.read(rows)) is not None:
        yield batch


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a split is read: by a first reader and by those that go on."""

    first: Config
    others: Config
    first_rows: int
    other_rows: int


DRAWN = st.builds(Drawn, CONFIGS, CONFIGS, READ_ROWS, READ_ROWS)


def check(source: Source[Any], splits: Iterable[Split], drawn: Drawn) -> list[Any]:
    """Check every offset of every split; return all rows."""
    source = pickle.loads(pickle.dumps(source))
    every: list[Any] = []
    for split in splits:
        whole = rest(source, split, 0, drawn.others, drawn.other_rows)
        before: list[Any] = []
        with closing(source.open(split, 0, drawn.first)) as reader:
            check_offset(source, split, reader.offset, (before, whole), drawn)
            for batch in batches(reader, drawn.first_rows):
                before += rows_in(batch)
                check_offset(source, split, reader.offset, (before, whole), drawn)
            check_offset(source, split, reader.offset, (before, whole), drawn)
        every += whole
    return every


def check_offset(
    source: Source[Any],
    split: Split,
    offset: int,
    rows: tuple[list[Any], list[Any]],
    drawn: Drawn,
) -> None:
    before, whole = rows
    after = rest(source, split, offset, drawn.others, drawn.other_rows)
    assert parted(before + after) == parted(whole)


def parted(rows: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return good and malformed rows, which leave a source as two streams."""
    bad = [row for row in rows if isinstance(row, tuple) and isinstance(row[-1], dict)]
    return [row for row in rows if row not in bad], bad


def ranges(path: Path, content: bytes, data: st.DataObject) -> list[ByteRange]:
    """Cut a file at any bytes."""
    cuts = data.draw(st.sets(st.integers(1, max(1, len(content) - 1)), max_size=3))
    bounds = sorted({0, *(cut for cut in cuts if cut < len(content)), len(content)})
    return [
        ByteRange(str(path), start, end, len(content))
        for start, end in pairwise(bounds)
    ]


def check_lines(line_format: Any, content: bytes, drawn: Drawn, data: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(content)
        source = LineFrames([str(path)], line_format, max_bad_rows=10**9)
        parts = ranges(path, content, data)
        if not line_format.is_splittable:
            parts = [replace(parts[0], end=len(content))] if parts else []
        return check(source, [Split("part", part) for part in parts], drawn)


@given(content=contents(TEXT_LINES), drawn=DRAWN, data=st.data())
def test_rows_of_text(content: bytes, drawn: Drawn, data: st.DataObject) -> None:
    """`read_text`: the offset is the byte at which the next line begins."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(content)
        parts = ranges(path, content, data)
        lines = check(TextSource(path), [Split("part", part) for part in parts], drawn)

    assert len(lines) == content.count(b"\n") + (not content.endswith(b"\n")) * bool(
        content.removeprefix(b"\xef\xbb\xbf").rpartition(b"\n")[2]
    )


@given(content=contents(TEXT_LINES), drawn=DRAWN, data=st.data())
def test_frames_of_text(content: bytes, drawn: Drawn, data: st.DataObject) -> None:
    """`read_lines`: the offset is the byte at which the next line begins."""
    lines = check_lines(TextFormat(), content, drawn, data)

    assert len(lines) >= content.count(b"\n")


@given(content=contents(CSV_LINES), drawn=DRAWN, data=st.data())
def test_csv(content: bytes, drawn: Drawn, data: st.DataObject) -> None:
    """`read_csv`: the same, for good and malformed rows."""
    line_format = CsvFormat(SCHEMA, CsvDialect(has_header=False))
    check_lines(line_format, content, drawn, data)


@given(content=contents(CSV_LINES), drawn=DRAWN, data=st.data())
def test_csv_with_a_header(content: bytes, drawn: Drawn, data: st.DataObject) -> None:
    """A header belongs to the first split, and is never taken for a row."""
    header = b"n,s\r\n"
    content = content.removeprefix(b"\xef\xbb\xbf")
    rows = check_lines(CsvFormat(SCHEMA, CsvDialect()), header + content, drawn, data)

    texts = [row[2]["text"] for row in rows if row[2] is not None]
    assert "n,s" not in texts


@given(content=contents(MULTILINE), drawn=DRAWN, data=st.data())
def test_csv_with_newlines_in_quotes(
    content: bytes, drawn: Drawn, data: st.DataObject
) -> None:
    """`multiline=True`: no offset is inside a quoted field."""
    dialect = CsvDialect(has_header=False, multiline=True)
    check_lines(CsvFormat(SCHEMA, dialect), content, drawn, data)


@given(content=contents(JSON_LINES), drawn=DRAWN, data=st.data())
def test_json_lines(content: bytes, drawn: Drawn, data: st.DataObject) -> None:
    """`read_jsonl`: the same."""
    check_lines(JsonFormat(SCHEMA), content, drawn, data)


VALUES = st.lists(st.none() | st.integers(0, 9), max_size=20)


@examples(0.5)
@given(values=VALUES, group=st.integers(1, 9), drawn=DRAWN)
def test_parquet(values: list[int | None], group: int, drawn: Drawn) -> None:
    """`read_parquet`: the offset counts the rows of the row group, above its number."""
    frame = pl.DataFrame({"n": values}, schema={"n": pl.Int64})
    content = io.BytesIO()
    frame.write_parquet(content, row_group_size=group)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.parquet")
        path.write_bytes(content.getvalue())
        source = ParquetSource(path)
        rows = check(source, source.splits(1), drawn)

    assert rows == frame.rows()


@given(values=VALUES, tasks=st.integers(1, 5), drawn=DRAWN)
def test_a_data_frame(values: list[int | None], tasks: int, drawn: Drawn) -> None:
    """`from_frame`: the offset counts the rows of the split."""
    frame = pl.DataFrame({"n": values}, schema={"n": pl.Int64})
    source = DataFrameSource(frame)

    assert check(source, source.splits(tasks), drawn) == frame.rows()


class Countdown:
    """Can be iterated again and again, but has no length."""

    def __init__(self, values: list[int | None]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[int | None]:
        return iter(self.values)

    def __call__(self, rank: int, size: int) -> Iterator[int | None]:
        return iter(self.values[rank::size])


@given(values=VALUES, drawn=DRAWN, is_list=st.booleans())
def test_an_iterable(values: list[int | None], drawn: Drawn, *, is_list: bool) -> None:
    """`from_iterable`: the offset counts the rows; a new reader skips that many."""
    source = IterableSource(values if is_list else Countdown(values))

    assert check(source, source.splits(3), drawn) == values


@given(values=VALUES, tasks=st.integers(1, 5), drawn=DRAWN)
def test_iterables_of_all_tasks(
    values: list[int | None], tasks: int, drawn: Drawn
) -> None:
    """`from_parallel`: the offset counts the rows of the task's iterable."""
    source: ParallelSource[int | None] = ParallelSource(Countdown(values))

    rows = check(source, source.splits(tasks), drawn)
    assert rows == [row for rank in range(tasks) for row in values[rank::tasks]]
