"""Parquet files as data frames by row groups, and data frames as Parquet files.

A split is one row group, so a file feeds as many tasks as it has of them.  The offset of
a reader is the row group's number times 2**40 plus the number of rows read from it.

Names and types are those of the footer of the first file; all files must have the same.
Arrow carries the types, so that a frame that was written comes back as it was.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Unpack, cast

import polars as pl
import pyarrow as pa
from pyarrow import parquet

from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.files import DirectorySink
from millstream.connectors.parts import PartFormat
from millstream.connectors.paths import (
    asked_for,
    changed_files,
    file_size,
    found_files,
    opened_file,
)
from millstream.connectors.places import Places
from millstream.credentials import shown
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.config import Config
    from millstream.connectors.files import PartOptions
    from millstream.connectors.paths import StrPath

__all__ = ["ParquetSink", "ParquetSource"]

_ROWS_MAX = 2**40
"""More rows than a row group has."""

_ROW_GROUP_ROWS = 131_072
"""Small enough for a few million rows to feed many tasks when they are read again."""


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """Rows of a file; `path` is its name in `Places`."""

    path: str
    number: int
    rows: int


class ParquetSource(Source[pl.DataFrame]):
    """The rows of Parquet files.

    Parameters
    ----------
    paths
        A file, a directory, a glob, or several of them.  Files of no bytes are skipped.
    columns
        Which columns to read, in this order; all by default.
    """

    is_bounded = True

    def __init__(
        self,
        paths: StrPath | Iterable[StrPath],
        *,
        columns: Iterable[str] | None = None,
    ) -> None:
        files = found_files("read_parquet", paths)
        self._asked = asked_for(files)
        full = [file for file in files if file_size(file)]
        if not full:
            msg = f"read_parquet finds no schema, since {shown(files[0])} is empty"
            raise UsageError(msg)
        self._files = Places(full)
        wanted = None if columns is None else list(columns)
        first, *others = full
        self.schema = _chosen(first, _schema(first), wanted)
        for other in others:
            found = _schema(other)
            _check_same(first, self.schema, other, found)
            if wanted is None:
                _check_same(other, found, first, self.schema)

    def reading(self, columns: Sequence[str]) -> ParquetSource:
        """Return a source of the same rows that reads only these columns."""
        source = copy.copy(self)
        source.schema = pl.Schema(
            {name: kind for name, kind in self.schema.items() if name in columns}
        )
        return source

    def splits(self, task_count: int) -> list[Split]:  # noqa: ARG002
        """Return the row groups that have rows."""
        return [
            Split(f"{name}[row group {number}]", _RowGroup(name, number, rows))
            for name in self._files
            for number, rows in _full_row_groups(self._files[name])
        ]

    def identity(self) -> str:
        """Return the paths."""
        return f"the rows of {self._asked}"

    def changes(self, splits: Sequence[Split]) -> list[str]:
        """Return which files have come."""
        known = {shown(split.payload.path): None for split in splits}
        full = [
            name
            for name in self._files
            if name in known or _full_row_groups(self._files[name])
        ]
        return changed_files(self._files.of(full), known)

    def open(
        self, split: Split, offset: int, config: Config
    ) -> SourceReader[pl.DataFrame]:
        """Return a reader of the row group from the row of `offset` on."""
        group: _RowGroup = split.payload
        file = _opened(self._files[group.path])
        rows = config.frame_buffer.rows
        return _RowGroupReader(group, file, offset, self.schema, rows)


class _RowGroupReader(SourceReader[pl.DataFrame]):
    def __init__(
        self,
        group: _RowGroup,
        file: parquet.ParquetFile,
        offset: int,
        schema: pl.Schema,
        batch_rows: int,
    ) -> None:
        self._schema = schema
        self._path = group.path
        first = group.number * _ROWS_MAX
        self._offset = max(offset, first)
        self._skip = self._offset - first
        self._file = file
        try:
            _check_unchanged(group, schema, self._file)
        except BaseException:
            self.close()
            raise
        self._batches: Iterator[pa.RecordBatch] = self._file.iter_batches(
            batch_rows, row_groups=[group.number], columns=list(schema)
        )

    def read(self, rows: int) -> pl.DataFrame | None:  # noqa: ARG002
        while True:
            try:
                batch = next(self._batches, None)
            except (pa.ArrowException, OSError) as error:
                raise ValueError(_damaged(self._path, error)) from error
            if batch is None:
                return None
            if batch.num_rows <= self._skip:
                self._skip -= batch.num_rows
                continue
            frame = _frame(batch.slice(self._skip)).select(list(self._schema))
            self._skip = 0
            self._offset += frame.height
            return frame

    @property
    def offset(self) -> int:
        return self._offset

    def close(self) -> None:
        self._file.close(force=True)


class ParquetSink(DirectorySink[pl.DataFrame]):
    """Rows as Parquet."""

    suffix = ".parquet"

    def __init__(
        self,
        directory: StrPath,
        schema: pl.Schema,
        *,
        compression: str = "zstd",
        **options: Unpack[PartOptions],
    ) -> None:
        super().__init__(directory, **options)
        _check_writable(schema, compression)
        self._schema = schema
        self._compression = compression

    def make_format(self, file: BinaryIO) -> PartFormat[pl.DataFrame]:
        return _ParquetPart(file, self._schema, self._compression)

    def merge(self, pieces: Iterable[BinaryIO], file: BinaryIO) -> None:
        merged = _ParquetPart(file, self._schema, self._compression)
        for piece in pieces:
            with piece:
                found = parquet.ParquetFile(piece)
                for number in range(found.num_row_groups):
                    merged.write(_frame(found.read_row_group(number)))
        merged.finish()


class _Writer(parquet.ParquetWriter):  # type: ignore[misc]  # Arrow has no types
    """Writes nothing when it is thrown away: the file of an abandoned part is closed."""

    def __del__(self) -> None:
        """Leave what was not finished as it is."""


class _ParquetPart(PartFormat[pl.DataFrame]):
    """Gathers batches to row groups; a part without rows still has the schema."""

    def __init__(self, file: BinaryIO, schema: pl.Schema, compression: str) -> None:
        self._schema = pl.DataFrame(schema=schema).to_arrow().schema
        self._parquet = _Writer(file, self._schema, compression=compression)
        self._gathered: list[pl.DataFrame] = []
        self._gathered_rows = 0

    def write(self, rows: pl.DataFrame) -> None:  # type: ignore[override]
        self._gathered.append(rows)
        self._gathered_rows += rows.height
        self.held_bytes += int(rows.estimated_size())
        if self._gathered_rows >= _ROW_GROUP_ROWS:
            self._write_group()

    def finish(self) -> None:
        self._write_group()
        self._parquet.close()

    def _write_group(self) -> None:
        if self._gathered_rows:
            table = pl.concat(self._gathered).to_arrow().cast(self._schema)
            self._parquet.write_table(table, row_group_size=2 * _ROW_GROUP_ROWS)
        self._gathered, self._gathered_rows, self.held_bytes = [], 0, 0


def _opened(path: str) -> parquet.ParquetFile:
    file = opened_file(path)
    try:
        return parquet.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        file.close()
        raise ValueError(_damaged(path, error)) from error


def _damaged(path: str, error: Exception) -> str:
    cause = str(error).partition("\n")[0].rstrip(".")
    return f"{shown(path)} is no Parquet file, or is cut short or damaged ({cause})"


def _schema(path: str) -> pl.Schema:
    """Return the names and types in a footer; in the driver."""
    try:
        file = _opened(path)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from None
    try:
        return _frame(file.schema_arrow.empty_table()).schema
    except (pl.exceptions.PolarsError, pa.ArrowException) as error:
        msg = f"read_parquet cannot read the types of {shown(path)}: {error}"
        raise UsageError(msg) from None
    finally:
        file.close(force=True)


def _full_row_groups(path: str) -> list[tuple[int, int]]:
    """Return the numbers of the row groups that have rows, and how many."""
    file = _opened(path)
    try:
        footer = file.metadata
        counts = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    finally:
        file.close(force=True)
    return [(number, rows) for number, rows in enumerate(counts) if rows]


def _check_unchanged(
    group: _RowGroup, schema: pl.Schema, file: parquet.ParquetFile
) -> None:
    """Refuse a file that is another one than when the flow was planned."""
    footer = file.metadata
    found = _frame(file.schema_arrow.empty_table()).schema
    changed = next((name for name in schema if found.get(name) != schema[name]), None)
    if changed is not None:
        what = f"column {changed!r} was {schema[changed]} and is {found.get(changed)}"
    elif footer.num_row_groups <= group.number:
        what = f"it has {footer.num_row_groups} row groups and no number {group.number}"
    elif footer.row_group(group.number).num_rows != group.rows:
        rows = footer.row_group(group.number).num_rows
        what = f"row group {group.number} had {group.rows} rows and has {rows}"
    else:
        return
    msg = (
        f"{group.path} has changed since the flow was planned ({what}); a file "
        "must not change while a flow reads it"
    )
    raise ValueError(msg)


def _chosen(path: str, schema: pl.Schema, columns: list[str] | None) -> pl.Schema:
    if columns is None:
        return schema
    for name in columns:
        if name not in schema:
            msg = f"{shown(path)} has no column {name!r}; it has {list(schema)}"
            raise UsageError(msg)
    if not columns:
        msg = "columns= names no column; name at least one"
        raise UsageError(msg)
    return pl.Schema({name: schema[name] for name in columns})


def _check_same(first: str, schema: pl.Schema, other: str, found: pl.Schema) -> None:
    first, other = shown(first), shown(other)
    for name in schema:
        if name not in found:
            msg = f"column {name!r} is in {first} and not in {other}"
        elif found[name] != schema[name]:
            msg = (
                f"column {name!r} is {schema[name]} in {first} and {found[name]} in "
                f"{other}"
            )
        else:
            continue
        msg += "; files that are read together must have the same columns"
        raise UsageError(msg)


def _check_writable(schema: pl.Schema, compression: str) -> None:
    try:
        arrow = pl.DataFrame(schema=schema).to_arrow().schema
        parquet.ParquetWriter(
            pa.BufferOutputStream(), arrow, compression=compression
        ).close()
    except (pa.ArrowException, pl.exceptions.PolarsError, ValueError, OSError) as error:
        msg = f"write_parquet cannot write {dict(schema)}: {error}"
        raise UsageError(msg) from None


def _frame(data: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(data))
