r"""TextSource: any cuts, any blocks and any interruptions give each line once.

Method: Hypothesis draws a content with many line ends, cuts it at any bytes (also
inside characters and between ``\r`` and ``\n``), reads the splits in blocks of any
size, and replaces a reader by a new one at its offset whenever it likes.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from millstream.config import Config
from millstream.connectors.base import Split
from millstream.connectors.text import TextSource, _ByteRange

CONTENTS = st.lists(
    st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\ufeff", "\u2028", "\x0b", "é", "𝄞"])
    | st.text(max_size=8)
).map(lambda pieces: "".join(pieces).encode("utf-8", "ignore"))


def expected_lines(content: bytes) -> list[str]:
    """Say in the plainest way what the lines of a file are."""
    lines = content.decode("utf-8-sig").split("\n")
    unterminated = lines.pop()
    return [line.removesuffix("\r") for line in lines] + [unterminated] * bool(
        unterminated
    )


def read_with_breaks(
    source: TextSource, split: Split, config: Config, breaks: st.DataObject
) -> list[str]:
    """Read a split to its end, going on with a new reader after drawn reads."""
    lines: list[str] = []
    offset = 0
    while True:
        with closing(source.open(split, offset, config)) as reader:
            for _ in range(
                breaks.draw(st.integers(0, 4), "reads before a break") or 99
            ):
                batch = reader.read(1)
                if batch is None:
                    return lines
                lines += batch
            # A reader that found nothing yet has not moved: let it go on for good.
            while reader.offset == offset and (batch := reader.read(1)) is not None:
                lines += batch
            offset = reader.offset


@given(content=CONTENTS, block_bytes=st.integers(1, 40), data=st.data())
def test_every_line_has_exactly_one_owner(
    content: bytes, block_bytes: int, data: st.DataObject
) -> None:
    """The lines over all splits are the lines of the file, in order."""
    cuts = data.draw(st.sets(st.integers(1, max(1, len(content) - 1)), max_size=6))
    bounds = sorted({0, *(cut for cut in cuts if cut < len(content)), len(content)})
    config = replace(Config(), source_block_bytes=block_bytes)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "a.txt")
        file.write_bytes(content)
        source = TextSource(file)
        lines = []
        for start, end in pairwise(bounds):
            split = Split("part", _ByteRange(str(file), start, end, len(content)))
            lines += read_with_breaks(source, split, config, data)

    assert lines == expected_lines(content)


@given(content=CONTENTS, block_bytes=st.integers(1, 40), start=st.integers(0, 30))
def test_a_new_reader_goes_on_where_any_reader_stopped(
    content: bytes, block_bytes: int, start: int
) -> None:
    """What a reader returned and what a new one returns from its offset is all."""
    config = replace(Config(), source_block_bytes=block_bytes)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "a.txt")
        file.write_bytes(content)
        source = TextSource(file)
        size = len(content)
        split = Split("part", _ByteRange(str(file), min(start, size), size, size))
        whole = all_lines(source, split, 0, config)
        before: list[str] = []
        with closing(source.open(split, 0, config)) as reader:
            while (batch := reader.read(1)) is not None:
                before += batch
                after = all_lines(source, split, reader.offset, config)
                assert before + after == whole


def all_lines(
    source: TextSource, split: Split, offset: int, config: Config
) -> list[str]:
    lines: list[str] = []
    with closing(source.open(split, offset, config)) as reader:
        while (batch := reader.read(1)) is not None:
            lines += batch
    return lines
