r"""Lines of text files as data frames with one column, and such frames as text files.

A line ends with ``\n`` or ``\r\n`` and is returned without it; nothing else ends a line.
Text is UTF-8, and a line that is not counts as malformed.  `millstream.connectors.text`
reads other encodings, as rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.columns.kernels import loading
from millstream.connectors.bad_rows import MalformedError
from millstream.connectors.files import EncodedSink
from millstream.connectors.frame_files import LineFormat, LineFrames
from millstream.connectors.plain import line_files
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from millstream.connectors.files import PartOptions
    from millstream.connectors.paths import StrPath

__all__ = ["LINE", "TextFormat", "TextFrameSink", "lines_source"]

LINE = "line"


class TextFormat(LineFormat):
    """Every line is a row."""

    schema = pl.Schema({LINE: pl.String})

    def parse(self, data: bytes) -> pl.DataFrame:
        kernels = loading.ready("lines")
        try:
            if kernels is None:
                return pl.read_lines(data, name=LINE)
            return pl.DataFrame([_lines(data, kernels).alias(LINE)])
        except pl.exceptions.PolarsError:
            msg = "it is not UTF-8"
            raise MalformedError(msg) from None


def _lines(data: bytes, kernels: ModuleType) -> pl.Series:
    """Return the lines as views into the data, which is not copied but checked."""
    octets = np.frombuffer(data, dtype=np.uint8)
    count = kernels.count_lines(octets)
    views = np.empty(2 * count, dtype=np.uint64)
    kernels.lines(octets, views)
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.binary_view(), count, buffers, null_count=0)
    lines = pl.from_arrow(array)
    assert isinstance(lines, pl.Series)
    return lines.cast(pl.String)


def lines_source(
    paths: StrPath | Iterable[StrPath], *, max_bad_rows: int
) -> LineFrames:
    """Return the source of lines of text."""
    files = line_files("read_lines", paths)
    return LineFrames(files, TextFormat(), max_bad_rows=max_bad_rows)


class TextFrameSink(EncodedSink[pl.DataFrame]):
    """The values of one text column as lines."""

    suffix = ".txt"

    def __init__(
        self, directory: StrPath, schema: pl.Schema, **options: Unpack[PartOptions]
    ) -> None:
        super().__init__(directory, **options)
        if len(schema) != 1 or schema.dtypes() != [pl.String()]:
            msg = (
                f"write_text writes one String column, got {dict(schema)}; select "
                "one and cast it to pl.String"
            )
            raise UsageError(msg)

    def _encode(self, rows: pl.DataFrame) -> bytes:  # type: ignore[override]
        lines = rows.to_series()
        if lines.null_count():
            msg = (
                f"write_text cannot write the null in column {lines.name!r}; put "
                "fill_null or drop_nulls before it"
            )
            raise TypeError(msg)
        return "\n".join([*lines.to_list(), ""]).encode()
