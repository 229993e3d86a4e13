r"""CSV files as data frames, and data frames as CSV files.

A newline ends a record, so that a file can be cut anywhere: quotes may hold separators,
but a quote that is left open at the end of a line makes the line malformed.  With
``multiline=True`` quotes may hold newlines too, and each file is read by one task.

Blank lines are no rows, except where there is one column, of which they are a null.  A
row with too few or too many fields is malformed, and so is a value that does not fit its
column's type, and a line that is not UTF-8.  Types of columns that nobody reads are not
looked at.

Polars parses whole blocks; what it lets pass (too few fields, open quotes, and too many
fields where it leaves some out) is found by counting, which costs next to nothing.
"""

from __future__ import annotations

import codecs
import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np
import polars as pl

from millstream.columns.kernels.loading import ready
from millstream.connectors.bad_rows import MalformedError
from millstream.connectors.files import EncodedSink
from millstream.connectors.frame_files import (
    LineFormat,
    LineFrames,
    lines_of,
    placed,
    sample,
)
from millstream.connectors.plain import line_files
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from millstream.connectors.files import PartOptions
    from millstream.connectors.paths import StrPath

__all__ = ["CsvDialect", "CsvFormat", "CsvSink", "csv_source"]

_UNREADABLE = (pl.Binary, pl.Duration, pl.Null, pl.Object, pl.List, pl.Array, pl.Struct)
"""Types whose values CSV has no text for."""


class _Options(TypedDict):
    separator: str
    quote_char: str | None
    null_values: list[str] | None


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How a CSV file is written."""

    separator: str = ","
    quote: str | None = '"'
    has_header: bool = True
    null_values: tuple[str, ...] = ()
    multiline: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be told apart."""
        _check_byte("separator", self.separator)
        if self.quote is not None:
            _check_byte("quote", self.quote)
        if self.quote == self.separator:
            msg = f"separator and quote are both {self.quote!r}; they must differ"
            raise UsageError(msg)
        for text in self.null_values:
            if self.separator in text:
                msg = f"the null value {text!r} must not hold the separator"
                raise UsageError(msg)

    @property
    def options(self) -> _Options:
        """What Polars calls these."""
        return {
            "separator": self.separator,
            "quote_char": self.quote,
            "null_values": list(self.null_values) or None,
        }

    def record_ends(self, data: bytes) -> list[bytes]:
        """Return the records of the bytes; the last may be cut off."""
        lines = lines_of(data)
        if not self.multiline or self.quote is None:
            return lines
        quote = self.quote.encode()
        records: list[bytes] = []
        is_open = False
        for line in lines:
            if is_open:
                records[-1] += line
            else:
                records.append(line)
            is_open ^= line.count(quote) % 2 == 1
        return records


class CsvFormat(LineFormat):
    """Records of fields in a dialect, as rows of a schema.

    Parameters
    ----------
    schema
        The columns of the file.
    columns
        Those of them to read; all by default.
    """

    def __init__(
        self,
        schema: pl.Schema,
        dialect: CsvDialect,
        columns: Sequence[str] | None = None,
    ) -> None:
        check_csv_schema(schema)
        read = list(schema) if columns is None else [n for n in schema if n in columns]
        self.schema = pl.Schema({name: schema[name] for name in read})
        self.is_splittable = not dialect.multiline
        self._dialect = dialect
        self._whole = schema
        self._fields = pl.Schema(
            {name: self.schema.get(name, pl.String()) for name in schema}
        )
        self._places = [number for number, name in enumerate(schema) if name in read]

    def reading(self, columns: Sequence[str]) -> CsvFormat:
        """Return a format that parses only these columns."""
        return CsvFormat(self._whole, self._dialect, columns)

    def parse(self, data: bytes) -> pl.DataFrame:
        if not data:
            return pl.DataFrame(schema=self.schema)
        if not data.endswith(b"\n"):
            data += b"\n"
        row_count = self._regular_rows(data)
        if row_count is not None:
            frame = self._read(data)
            if frame.height == row_count:
                return frame
        return self._checked(data)

    def _regular_rows(self, data: bytes) -> int | None:
        """Return the number of rows if every line plainly has all fields."""
        kernels = ready("fields") if self.is_splittable else None
        if kernels is None:
            return None
        dialect, records = self._dialect, np.frombuffer(data, np.uint8)
        quote = ord(dialect.quote or "\0")
        row_count: int = kernels.regular_rows(
            records,
            ord(dialect.separator),
            quote,
            int(dialect.quote is not None),
            len(self._fields),
        )
        return None if row_count < 0 else row_count

    def _checked(self, data: bytes) -> pl.DataFrame:
        """Look at all fields, also those that are not read; return the rows."""
        whole = self._read(data, is_whole=True)
        self._check_lines(whole, data)
        self._check_fields(whole, data)
        return whole.select(self.schema.names())

    def _read(self, data: bytes, *, is_whole: bool = False) -> pl.DataFrame:
        """Let Polars parse the columns that are read, or all."""
        # Polars drops a byte order mark, which belongs to the text in mid-file.
        mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        try:
            return pl.read_csv(
                mark + data,
                has_header=False,
                schema=self._fields,
                columns=None if is_whole else self._places,
                **self._dialect.options,
            )
        except pl.exceptions.PolarsError as error:
            raise MalformedError(_cause(error)) from None

    def _check_lines(self, frame: pl.DataFrame, data: bytes) -> None:
        """Find records that Polars read over several lines."""
        if self._dialect.multiline or not self._has_quotes(data):
            return
        if frame.height != data.count(b"\n"):
            msg = "a quote is left open at the end of the line"
            raise MalformedError(msg)

    def _check_fields(self, frame: pl.DataFrame, data: bytes) -> None:
        """Find rows that Polars filled up with nulls.

        Such a row has a null at its end, and too few separators outside of quotes;
        rows with too many were refused before.
        """
        if frame.width == 1 or frame[:, -1].null_count() == 0:
            return
        separator = self._dialect.separator
        missing = frame.height * (frame.width - 1) - data.count(separator.encode())
        if self._has_quotes(data):
            texts = [
                pl.col(name).cast(pl.String).str.join("")
                for name, kind in frame.schema.items()
                if kind.base_type() in (pl.String, pl.Categorical, pl.Enum)
            ]
            joined = frame.select(texts).row(0) if texts else ()
            missing += sum(text.count(separator) for text in joined)
        if missing:
            msg = f"it has fewer than {frame.width} fields"
            raise MalformedError(msg)

    def _has_quotes(self, data: bytes) -> bool:
        quote = self._dialect.quote
        return quote is not None and quote.encode() in data

    def cut(self, data: bytes) -> int:
        if not self._dialect.multiline or self._dialect.quote is None:
            return super().cut(data)
        quote = self._dialect.quote.encode()
        end = len(data)
        is_open = data.count(quote) % 2 == 1
        while (newline := data.rfind(b"\n", 0, end)) >= 0:
            is_open ^= data.count(quote, newline, end) % 2 == 1
            if not is_open:
                return newline + 1
            end = newline
        return 0

    def records(self, data: bytes) -> list[tuple[int, bytes]]:
        records = placed(self._dialect.record_ends(data))
        if len(self._fields) == 1:
            return records
        return [(at, record) for at, record in records if record.strip(b"\r\n")]

    def preamble(self, path: str, data: bytes) -> int:
        mark = super().preamble(path, data)
        if not self._dialect.has_header:
            return mark
        header = self._dialect.record_ends(data[mark:])[0]
        names = header_names(path, header, self._dialect)
        if names != list(self._fields):
            msg = (
                f"the header of {path} names the columns {names}, but the schema says "
                f"{list(self._fields)}; read files of different layouts on their own"
            )
            raise ValueError(msg)
        return mark + len(header)


def csv_source(
    paths: StrPath | Iterable[StrPath],
    *,
    schema: Mapping[str, Any] | None,
    dialect: CsvDialect,
    max_bad_rows: int,
) -> LineFrames:
    """Return the source of CSV files, with the schema given or taken from a sample."""
    files = line_files("read_csv", paths)
    path, data, is_whole = sample(files)
    if schema is None:
        line_format = CsvFormat(
            _inferred(path, data, dialect, is_whole=is_whole), dialect
        )
    else:
        line_format = CsvFormat(pl.Schema(schema), dialect)
    if data:
        try:
            line_format.preamble(path, data)
        except ValueError as error:
            raise UsageError(str(error)) from None
    return LineFrames(files, line_format, max_bad_rows=max_bad_rows)


def header_names(path: str, header: bytes, dialect: CsvDialect) -> list[str]:
    """Return the names in the first record of a file."""
    try:
        text = io.StringIO(header.decode(), newline="")
    except UnicodeDecodeError as error:
        msg = f"the header of {path} is not UTF-8 ({error}); convert the file"
        raise ValueError(msg) from None
    rows = csv.reader(
        text,
        delimiter=dialect.separator,
        quotechar=dialect.quote,
        quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
    )
    names = next(rows, [])
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        what = f"has two columns {twice[0]!r}" if twice else "is a blank line"
        msg = f"the header of {path} {what}; pass header=False and a schema="
        raise ValueError(msg)
    return names


def check_csv_schema(schema: pl.Schema) -> None:
    """Refuse types that CSV cannot express."""
    if not schema:
        msg = "a CSV file has at least one column, but the schema has none"
        raise UsageError(msg)
    for name, kind in schema.items():
        if kind.base_type() in _UNREADABLE:
            msg = (
                f"CSV has no text for the type {kind} of column {name!r}; use Parquet, "
                "or another type"
            )
            raise UsageError(msg)


class CsvSink(EncodedSink[pl.DataFrame]):
    """Rows as CSV, with a header in every part."""

    suffix = ".csv"

    def __init__(
        self,
        directory: StrPath,
        schema: pl.Schema,
        dialect: CsvDialect,
        **options: Unpack[PartOptions],
    ) -> None:
        super().__init__(directory, **options)
        check_csv_schema(schema)
        self._dialect = dialect
        if dialect.has_header:
            empty = pl.DataFrame(schema=schema)
            self._head = self._text(empty, include_header=True)

    def _encode(self, rows: pl.DataFrame) -> bytes:  # type: ignore[override]
        return self._text(rows, include_header=False)

    def _text(self, frame: pl.DataFrame, *, include_header: bool) -> bytes:
        dialect = self._dialect
        text = frame.write_csv(
            include_header=include_header,
            separator=dialect.separator,
            quote_char=dialect.quote or '"',
            quote_style="never" if dialect.quote is None else "necessary",
        )
        return text.encode()


def _inferred(
    path: str, data: bytes, dialect: CsvDialect, *, is_whole: bool
) -> pl.Schema:
    """Return the schema of the sample; a column of nulls is text."""
    records = dialect.record_ends(data.removeprefix(codecs.BOM_UTF8))
    if not is_whole and len(records) > 1:
        records.pop()
    names = None
    if dialect.has_header and records:
        try:
            names = header_names(path, records.pop(0), dialect)
        except ValueError as error:
            raise UsageError(str(error)) from None
    if not records and names is None:
        msg = f"read_csv finds nothing in {path} to take a schema from; pass schema="
        raise UsageError(msg)
    kinds = _kinds(path, [r for r in records if r.strip(b"\r\n")], dialect)
    if names is None:
        names = [f"column_{number + 1}" for number in range(len(kinds))]
    kinds = (kinds + [pl.String()] * len(names))[: len(names)]
    return pl.Schema(dict(zip(names, kinds, strict=True)))


def _kinds(path: str, records: list[bytes], dialect: CsvDialect) -> list[pl.DataType]:
    if not records:
        return []
    try:
        frame = pl.read_csv(
            b"".join(records),
            has_header=False,
            infer_schema_length=None,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
            **dialect.options,
        )
    except pl.exceptions.PolarsError as error:
        msg = (
            f"read_csv cannot take a schema from the first lines of {path} "
            f"({_cause(error)}); pass schema="
        )
        raise UsageError(msg) from None
    return frame.dtypes


def _cause(error: Exception) -> str:
    """Return what Polars says is wrong, without its advice."""
    text = str(error).partition("\n")[0]
    if "not found in CSV" in text:
        return "it has too few fields"
    if "more fields" in text or "not specified in schema" in text:
        return "it has too many fields"
    if "malformed" in text:
        return "a quote stands where none may"
    return text


def _check_byte(what: str, text: str) -> None:
    if len(text.encode()) != 1 or text in "\r\n":
        msg = f"{what} must be one ASCII character other than a line end, got {text!r}"
        raise UsageError(msg)
