"""Lines of JSON objects as data frames, and data frames as such lines.

Keys are columns: a missing key is a null, and keys that the schema does not name are
left out.  Blank lines are no rows.  A line that is no JSON object, or has a value that
does not fit its column's type, is malformed.  JSON has no NaN and no infinity: a line with
one is malformed, and a row with one is refused, as for rows that are no frames.  Values of columns that nobody reads are
not looked at.
"""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Unpack

import polars as pl

from millstream.connectors.bad_rows import MalformedError
from millstream.connectors.files import EncodedSink
from millstream.connectors.frame_files import (
    LineFormat,
    LineFrames,
    lines_of,
    sample,
)
from millstream.connectors.plain import line_files
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from polars.datatypes import DataTypeClass

    from millstream.connectors.files import PartOptions
    from millstream.connectors.paths import StrPath

__all__ = ["JsonFormat", "JsonFrameSink", "jsonl_source"]

_NATIVE = frozenset(
    {
        *(pl.Boolean, pl.String, pl.Int32, pl.Int64, pl.UInt32, pl.UInt64),
        *(pl.Float32, pl.Float64, pl.Date, pl.Datetime),
    }
)
"""Types that Polars reads from JSON itself."""

_CAST_FROM: dict[type[pl.DataType], type[pl.DataType]] = {
    **dict.fromkeys((pl.Int8, pl.Int16, pl.UInt8, pl.UInt16), pl.Int64),
    **dict.fromkeys((pl.Decimal, pl.Time, pl.Categorical, pl.Enum), pl.String),
}
"""Types that are made of another one, and of which."""

_INNER = frozenset({pl.Boolean, pl.String, pl.Int64, pl.Float64})
"""Types that lists and structs may hold."""


class JsonFormat(LineFormat):
    """Every line is an object, and every object a row."""

    def __init__(self, schema: pl.Schema) -> None:
        self.schema = schema
        read: dict[str, pl.DataType | type[pl.DataType]] = {}
        self._casts: list[pl.Expr] = []
        for name, kind in schema.items():
            base = kind.base_type()
            read[name] = _CAST_FROM.get(base, kind)
            if base in _CAST_FROM:
                self._casts.append(_converted(name, kind))
            elif base not in _NATIVE and not _is_nested(kind):
                msg = (
                    f"read_jsonl cannot read the type {kind} of column {name!r}; read "
                    "it as pl.String or pl.Int64 and convert it afterwards (lists and "
                    "structs hold Boolean, Int64, Float64 and String)"
                )
                raise UsageError(msg)
        self._read = pl.Schema(read)

    def reading(self, columns: Sequence[str]) -> JsonFormat:
        """Return a format that leaves out all keys but these."""
        return JsonFormat(
            pl.Schema({n: kind for n, kind in self.schema.items() if n in columns})
        )

    def parse(self, data: bytes) -> pl.DataFrame:
        if not data.strip():
            return pl.DataFrame(schema=self.schema)
        try:
            frame = pl.read_ndjson(data, schema=self._read)
            return frame.with_columns(self._casts) if self._casts else frame
        except pl.exceptions.PolarsError as error:
            raise MalformedError(str(error).partition("\n")[0]) from None

    def records(self, data: bytes) -> list[tuple[int, bytes]]:
        return [(at, line) for at, line in super().records(data) if line.strip()]


def jsonl_source(
    paths: StrPath | Iterable[StrPath],
    *,
    schema: Mapping[str, Any] | None,
    max_bad_rows: int,
) -> LineFrames:
    """Return the source of JSON lines, with the schema given or taken from a sample."""
    files = line_files("read_jsonl", paths)
    found = _inferred(files) if schema is None else pl.Schema(schema)
    return LineFrames(files, JsonFormat(found), max_bad_rows=max_bad_rows)


class JsonFrameSink(EncodedSink[pl.DataFrame]):
    """Rows as JSON objects, one per line."""

    suffix = ".jsonl"

    def __init__(
        self, directory: StrPath, schema: pl.Schema, **options: Unpack[PartOptions]
    ) -> None:
        super().__init__(directory, **options)
        for name, kind in schema.items():
            if any(k.base_type() in (pl.Binary, pl.Object) for k in _all_kinds(kind)):
                msg = (
                    f"JSON has no text for the type {kind} of column {name!r}; encode "
                    "it as text, or use Parquet"
                )
                raise UsageError(msg)

    def _encode(self, rows: pl.DataFrame) -> bytes:  # type: ignore[override]
        for column in rows.iter_columns():
            if not _is_finite(column):
                msg = (
                    f"write_jsonl cannot write column {column.name!r}, which holds NaN or "
                    "an infinity that JSON does not have; put fill_nan(None) or a cast "
                    "to text before it"
                )
                raise TypeError(msg)
        return rows.write_ndjson().encode()


def _is_finite(column: pl.Series) -> bool:
    """Whether all numbers in a column are, also those inside lists and structs."""
    kind = column.dtype
    if kind.is_float():
        return bool(column.is_finite().all())
    if not any(each.is_float() for each in _all_kinds(kind)):
        return True
    if isinstance(kind, pl.Struct):
        return all(map(_is_finite, column.struct.unnest().iter_columns()))
    return _is_finite(column.explode())


def _inferred(files: list[str]) -> pl.Schema:
    """Return the schema of the sample; what is always null is text."""
    path, data, is_whole = sample(files)
    lines = lines_of(data.removeprefix(codecs.BOM_UTF8))
    if not is_whole and len(lines) > 1:
        lines.pop()
    objects = b"".join(line.rstrip() + b"\n" for line in lines if _is_object(line))
    if not objects:
        msg = (
            f"read_jsonl finds no JSON object in the first lines of {path} to take a "
            "schema from; pass schema="
        )
        raise UsageError(msg)
    try:
        found = pl.read_ndjson(objects, infer_schema_length=None).schema
    except pl.exceptions.PolarsError as error:
        cause = str(error).partition("\n")[0]
        msg = (
            f"read_jsonl cannot take a schema from the first lines of {path}, "
            f"whose values have different types ({cause}); pass schema="
        )
        raise UsageError(msg) from None
    return pl.Schema({name: _without_null(kind) for name, kind in found.items()})


def _converted(name: str, kind: pl.DataType) -> pl.Expr:
    """Return the column as what it is made to be; what does not fit raises."""
    column = pl.col(name)
    if kind == pl.Time:
        return column.str.to_time("%H:%M:%S%.f", strict=True)
    return column.cast(kind, strict=True)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line, parse_constant=_refuse), dict)
    except ValueError:
        return False


def _refuse(constant: str) -> None:
    """Read no NaN or infinity, which JSON does not have."""
    raise ValueError(constant)


def _without_null(kind: pl.DataType) -> pl.DataType:
    if isinstance(kind, pl.List):
        return pl.List(_without_null(_instance(kind.inner)))
    if isinstance(kind, pl.Struct):
        fields = {f.name: _without_null(_instance(f.dtype)) for f in kind.fields}
        return pl.Struct(fields)
    return pl.String() if isinstance(kind, pl.Null) else kind


def _is_nested(kind: pl.DataType) -> bool:
    inner = list(_inner_kinds(kind))
    return bool(inner) and all(
        one.base_type() in _INNER or _is_nested(one) for one in inner
    )


def _inner_kinds(kind: pl.DataType) -> Iterator[pl.DataType]:
    if isinstance(kind, pl.List | pl.Array):
        yield _instance(kind.inner)
    elif isinstance(kind, pl.Struct):
        yield from (_instance(field.dtype) for field in kind.fields)


def _all_kinds(kind: pl.DataType) -> Iterator[pl.DataType]:
    yield kind
    for inner in _inner_kinds(kind):
        yield from _all_kinds(inner)


def _instance(kind: pl.DataType | DataTypeClass) -> pl.DataType:
    """Return a type that may be written as a class, as an instance."""
    return kind() if isinstance(kind, type) else kind
