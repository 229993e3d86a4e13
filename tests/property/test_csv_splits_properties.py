r"""CSV, JSON and text frames: any cuts, blocks and interruptions give each row once.

Method: Hypothesis draws a content full of separators, quotes, line ends and bytes that are
no UTF-8, cuts it at any bytes, reads the splits in blocks of any size, and replaces a
reader by a new one at its offset whenever it likes.  What must come out is what parsing
every line on its own gives, and for files that Python's `csv` wrote, what it was given.
"""

from __future__ import annotations

import csv
import io
import tempfile
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config, fixed
from millstream.connectors.bad_rows import MalformedError, bad_part, good_part
from millstream.connectors.base import Split
from millstream.connectors.csv import CsvDialect, CsvFormat
from millstream.connectors.frame_files import ByteRange, LineFormat, LineFrames
from millstream.connectors.jsonl import JsonFormat
from millstream.connectors.text_frame import TextFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connectors.base import Source

SCHEMA = pl.Schema({"n": pl.Int64, "s": pl.String, "t": pl.String})
ONE_COLUMN = pl.Schema({"s": pl.String})
DIALECT = CsvDialect(has_header=False)
UNLIMITED = 10**9

PIECES = st.sampled_from(
    [
        *(b"\n", b"\r\n", b"\n\n", b"\r", b",", b'"', b'""', b"\xff", b"\xef\xbb\xbf"),
        *(b"7", b"-1", b"x", b'1,a,b\n2,"c,d",e\n', b"3,,\n", b',"",\n', b"4,f\n"),
        *(b'5,"g\n6,h",i\n', b"7,j,k,l\n", "8,é,\u2028\n".encode()),
        *(b'{"n":1,"s":"a","t":null}\n', b'{"n":"x"}\n', b"{}\n", b'{"n":2'),
    ]
)
CONTENTS = st.lists(PIECES, max_size=12).map(b"".join)
BLANK_LINES_ARE_ROWS = [CsvFormat(ONE_COLUMN, DIALECT), TextFormat()]
FORMATS = st.sampled_from(
    [
        *BLANK_LINES_ARE_ROWS,
        CsvFormat(SCHEMA, DIALECT),
        CsvFormat(SCHEMA, CsvDialect(has_header=False, quote=None)),
        CsvFormat(SCHEMA, DIALECT, ["n", "t"]),
        CsvFormat(SCHEMA, DIALECT, ["s"]),
        JsonFormat(SCHEMA),
        JsonFormat(SCHEMA).reading(["n"]),
    ]
)

Rows = list[tuple[Any, ...]]
Places = list[tuple[int, int]]
"""Number and first byte of lines."""


def read(
    source: Source[pl.DataFrame],
    part: ByteRange,
    config: Config,
    reads_before_break: Callable[[], int],
) -> list[pl.DataFrame]:
    """Read a range to its end, going on with a new reader now and then."""
    split = Split("part", part)
    frames: list[pl.DataFrame] = []
    offset = 0
    while True:
        with closing(source.open(split, offset, config)) as reader:
            for _ in range(reads_before_break()):
                frame: Any = reader.read(1)
                if frame is None:
                    return frames
                frames.append(frame)
            offset = reader.offset


def cut_and_read(
    content: bytes, line_format: LineFormat, bounds: list[int], data: st.DataObject
) -> tuple[Rows, Places]:
    """Return the good rows and the places of the bad ones, in the order of the file."""
    config = replace(
        Config(),
        source_block_bytes=data.draw(st.integers(1, 40), "block"),
        frame_buffer=fixed(data.draw(st.integers(1, 4), "rows")),
    )
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "a")
        file.write_bytes(content)
        source = LineFrames([str(file)], line_format, max_bad_rows=UNLIMITED)
        frames = [
            frame
            for start, end in pairwise(bounds)
            for frame in read(
                source,
                ByteRange(str(file), start, end, len(content)),
                config,
                lambda: data.draw(st.sampled_from([1, 2, 5, 99]), "reads"),
            )
        ]
    good = [row for frame in frames for row in good_part(frame).rows()]
    bad = [
        place
        for frame in frames
        for place in bad_part(frame).select("line", "offset").iter_rows()
    ]
    return good, bad


def line_by_line(content: bytes, line_format: LineFormat) -> tuple[Rows, Places]:
    """Say in the plainest way what the rows of a file are."""
    good: Rows = []
    bad: Places = []
    at = 0
    lines = content.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + [lines[-1]] * bool(lines[-1])
    for number, line in enumerate(lines, 1):
        record = line.removeprefix(b"\xef\xbb\xbf") if at == 0 else line
        is_row = record.strip(b"\r\n") or line_format in BLANK_LINES_ARE_ROWS
        if record and is_row and not (record.isspace() and is_json(line_format)):
            try:
                good += line_format.parse(record).rows()
            except MalformedError:
                bad.append((number, at + len(line) - len(record)))
        at += len(line)
    return good, bad


def is_json(line_format: LineFormat) -> bool:
    return isinstance(line_format, JsonFormat)


def bounds_of(content: bytes, data: st.DataObject) -> list[int]:
    cuts = data.draw(st.sets(st.integers(1, max(1, len(content) - 1)), max_size=5))
    return sorted({0, *(cut for cut in cuts if cut < len(content)), len(content)})


@settings(deadline=None)
@given(content=CONTENTS, line_format=FORMATS, data=st.data())
def test_every_row_has_exactly_one_owner_and_none_depends_on_its_neighbors(
    content: bytes, line_format: LineFormat, data: st.DataObject
) -> None:
    """Blocks give what lines give, good and bad, whatever the cuts and interruptions."""
    found = cut_and_read(content, line_format, bounds_of(content, data), data)

    assert found == line_by_line(content, line_format)


TEXTS = st.text(st.sampled_from("ab,;\" 'é\u2028\ufeff\t#"), max_size=5)


@settings(deadline=None)
@given(table=st.lists(st.tuples(st.integers(), TEXTS, TEXTS)), data=st.data())
def test_what_another_program_wrote_comes_back(
    table: list[tuple[int, str, str]], data: st.DataObject
) -> None:
    """Python's `csv` and this reader agree on quotes; a quoted empty text is no null."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    content = text.getvalue().encode()
    columns = pl.Schema({"n": pl.String, "s": pl.String, "t": pl.String})
    line_format = CsvFormat(columns, DIALECT)

    found = cut_and_read(content, line_format, bounds_of(content, data), data)

    assert found == ([(str(n), s, t) for n, s, t in table], [])


LINES_IN_TEXTS = st.text(st.sampled_from('a,"\n\r'), max_size=5)


@settings(deadline=None)
@given(table=st.lists(st.tuples(LINES_IN_TEXTS, LINES_IN_TEXTS)), data=st.data())
def test_multiline_files_keep_quoted_newlines_at_any_block_size(
    table: list[tuple[str, str]], data: st.DataObject
) -> None:
    """A block never ends inside a quoted field."""
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    content = text.getvalue().encode()
    dialect = CsvDialect(has_header=False, multiline=True)
    line_format = CsvFormat(pl.Schema({"s": pl.String, "t": pl.String}), dialect)

    found = cut_and_read(content, line_format, [0, len(content)], data)

    assert found == (table, [])
