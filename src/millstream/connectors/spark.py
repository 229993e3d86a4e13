"""Spark DataFrames as a source, and frames as Spark DataFrames.

Workers hold Spark's task slots, so nothing of Spark may have to run while they do.  A
DataFrame is therefore *staged*: computed by Spark before the workers start and written
as Parquet, from which every task reads its row groups, as often as it must.  The way
back is the same: the flow's output is Parquet, and a DataFrame reads it.  Only a stream
that goes on needs a slot beside the workers (`connectors.spark_stream`).

Types are mapped by name, both ways; a type that is not in the tables here is refused.
Beside `launch.spark` this is the only module that imports pyspark.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.batch_lists import BatchDirectory
from millstream.connectors.parquet import ParquetSource
from millstream.connectors.spark_plans import rows_in_words
from millstream.connectors.spark_stream import query_reason
from millstream.connectors.staging import Staging
from millstream.errors import OperationalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from polars.datatypes import DataTypeClass
    from pyspark.sql import DataFrame

    from millstream.config import Config
    from millstream.connectors.spark_stream import RunningQuery

    _Type = pl.DataType | DataTypeClass

__all__ = [
    "SparkSource",
    "check_for_spark",
    "polars_schema",
    "read_back",
    "started_stream",
    "written_frame",
    "written_stream",
]

_PLAIN_TYPES: dict[type[spark_types.DataType], pl.DataType] = {
    spark_types.ByteType: pl.Int8(),
    spark_types.ShortType: pl.Int16(),
    spark_types.IntegerType: pl.Int32(),
    spark_types.LongType: pl.Int64(),
    spark_types.FloatType: pl.Float32(),
    spark_types.DoubleType: pl.Float64(),
    spark_types.BooleanType: pl.Boolean(),
    spark_types.BinaryType: pl.Binary(),
    spark_types.DateType: pl.Date(),
    spark_types.TimestampType: pl.Datetime("us", "UTC"),
    spark_types.TimestampNTZType: pl.Datetime("us"),
    spark_types.DayTimeIntervalType: pl.Duration("us"),
}
"""A timestamp of Spark's is an instant; the zone in which it is shown is the session's."""

_SPARK_TYPES: dict[DataTypeClass, spark_types.DataType] = {
    pl.Int8: spark_types.ByteType(),
    pl.Int16: spark_types.ShortType(),
    pl.Int32: spark_types.IntegerType(),
    pl.Int64: spark_types.LongType(),
    pl.UInt8: spark_types.ShortType(),
    pl.UInt16: spark_types.IntegerType(),
    pl.UInt32: spark_types.LongType(),
    pl.UInt64: spark_types.DecimalType(20, 0),
    pl.Float32: spark_types.FloatType(),
    pl.Float64: spark_types.DoubleType(),
    pl.String: spark_types.StringType(),
    pl.Categorical: spark_types.StringType(),
    pl.Enum: spark_types.StringType(),
    pl.Boolean: spark_types.BooleanType(),
    pl.Binary: spark_types.BinaryType(),
    pl.Date: spark_types.DateType(),
}
"""Spark has no unsigned numbers; the next wider signed one holds them all."""

_ROWS = "rows"
_STOPPING_S = 0.2
"""Time in which a query that nobody reads from is told to stop."""

_SIGNS_OF_A_STOP = ("Interrupted", "ClosedByInterrupt", "cancelled")
"""In the error of a write that somebody who stopped the query cut off."""

_STAGING_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Not the old 96-bit timestamps, nor the old calendar before 1582."""


class SparkSource(Source[pl.DataFrame]):
    """The rows of a bounded Spark DataFrame, staged as Parquet.

    Parameters
    ----------
    write
        Computes the rows and writes them as Parquet to a directory; run in the driver,
        before the workers start.
    schema
        Schema of the Spark DataFrame.
    staging
        Directory that the driver and all executors share; one of this machine's
        temporary ones by default, which is enough for a local master.
    inputs
        What the DataFrame reads, in words; "" if nobody can tell.
    """

    is_bounded = True

    def __init__(
        self,
        write: Callable[[Path], None],
        schema: spark_types.StructType,
        staging: str | None = None,
        inputs: str = "",
    ) -> None:
        self.schema = polars_schema(schema)
        self._inputs = inputs
        self._write: Callable[[Path], None] | None = write
        self._staging = Staging(staging)
        self._staged: ParquetSource | None = None

    def identity(self) -> str:
        """Return what Spark reads, and the columns that it makes of it."""
        return rows_in_words("the rows that Spark had of", self._inputs, self.schema)

    def keep_in(self, directory: str | None, label: str) -> None:
        """Let the staged rows stay."""
        self._staging.keep_in(directory, label)

    def splits(self, task_count: int) -> list[Split]:
        """Let Spark compute the rows, and return their row groups."""
        assert self._write is not None, "rows are staged in the driver"
        self.release()
        rows = Path(self._staging.make()) / _ROWS
        try:
            self._write(rows)
        except PySparkException as error:
            msg = (
                f"Spark could not compute the rows to be read ({query_reason(str(error))}); "
                "mend the DataFrame and run the flow again"
            )
            raise OperationalError(msg) from error
        self._find_rows()
        return [] if self._staged is None else self._staged.splits(task_count)

    def resume(self, splits: tuple[Split, ...]) -> None:  # noqa: ARG002 - of all sources
        """Take up the rows that an earlier run staged."""
        self._staging.find()
        self._find_rows()

    def _find_rows(self) -> None:
        assert self._staging.path is not None
        files = sorted((Path(self._staging.path) / _ROWS).glob("*.parquet"))
        self._staged = ParquetSource(files) if files else None

    def open(
        self, split: Split, offset: int, config: Config
    ) -> SourceReader[pl.DataFrame]:
        """Return a reader of a row group of the staged rows."""
        assert self._staged is not None, "rows are staged before anybody reads them"
        assert self._staging.path is not None
        # The directory may have been moved since the rows were cut into splits.
        file = Path(self._staging.path) / _ROWS / Path(split.payload.path).name
        here = replace(split, payload=replace(split.payload, path=str(file)))
        return _CastReader(self._staged.open(here, offset, config), self.schema)

    def suspend(self) -> None:
        """Leave the staged rows."""
        self._staging.leave()

    def release(self) -> None:
        """Remove the staged rows."""
        self._staging.remove()

    def __getstate__(self) -> dict[str, object]:
        """Leave behind what only the driver can use."""
        return {**self.__dict__, "_write": None}


class _CastReader(SourceReader[pl.DataFrame]):
    """Gives columns the types that Parquet has no name for: Spark's intervals."""

    def __init__(self, reader: SourceReader[pl.DataFrame], schema: pl.Schema) -> None:
        self._reader = reader
        self._schema = schema

    def read(self, rows: int) -> pl.DataFrame | None:
        frame = self._reader.read(rows)
        if frame is None:
            return None
        assert isinstance(frame, pl.DataFrame), "Parquet is read as frames"
        return frame.cast(self._schema)

    @property
    def offset(self) -> int:
        return self._reader.offset

    def close(self) -> None:
        self._reader.close()


def written_frame(frame: DataFrame) -> Callable[[Path], None]:
    """Return what writes a Spark DataFrame as Parquet."""

    def write(directory: Path) -> None:
        with _exact_times(frame.sparkSession):
            frame.write.parquet(_url(directory))

    return write


def written_stream(stream: DataFrame) -> Callable[[Path], None]:
    """Return what writes all that a streaming DataFrame's source has now."""

    def write(directory: Path) -> None:
        with _exact_times(stream.sparkSession):
            query = (
                stream.writeStream.format("parquet")
                .option("checkpointLocation", _url(f"{directory}-checkpoint"))
                .trigger(availableNow=True)
                .start(_url(directory))
            )
            query.awaitTermination()

    return write


def started_stream(
    stream: DataFrame, trigger_ms: int, name: str
) -> Callable[[str, int], RunningQuery]:
    """Return what starts a query that lists each micro-batch in a directory."""

    def start(directory: str, part_count: int) -> RunningQuery:
        return (
            stream.writeStream.queryName(f"{name}-{secrets.token_hex(4)}")
            .foreachBatch(partial(_stage_batch, directory, part_count))
            .option("checkpointLocation", _url(f"{directory}/checkpoint"))
            .trigger(processingTime=f"{trigger_ms} milliseconds")
            .start()
        )

    return start


def _stage_batch(directory: str, part_count: int, frame: DataFrame, batch: int) -> None:
    """Write and list a micro-batch, unless that was done before Spark came back to it.

    A batch that is not staged must not look done to Spark, which would commit it: where
    nobody reads on, this raises.
    """
    staged = BatchDirectory(directory)
    if staged.listed(batch) is not None:
        return
    if not staged.await_room(batch, part_count):
        raise _stopped()
    staged.forget_read(part_count)
    place = staged.new_place(batch)
    try:
        written_frame(frame)(place)
    except Exception as error:  # noqa: BLE001 - Spark may raise anything
        # Without the cause: it would be told to Spark with all of Java's stack, in which
        # Spark then searches by a recursive pattern, until its own stack is full.
        text = str(error)
        if staged.is_closed or any(sign in text for sign in _SIGNS_OF_A_STOP):
            raise _stopped() from None
        raise RuntimeError(query_reason(text)) from None
    staged.publish(batch, sorted(place.glob("*.parquet")))


def _stopped() -> RuntimeError:
    """Return what ends a batch so that Spark takes it for the interrupt of a stop.

    Spark knows that by these words, if it has been told to stop; so that is waited for.
    """
    threading.Event().wait(_STOPPING_S)
    return RuntimeError(
        "py4j.protocol.Py4JJavaError: An error occurred while calling a function of a "
        "query that is stopped: java.lang.InterruptedException"
    )


def _url(path: str | Path) -> str:
    """Return a path as a URL, so that Spark takes it for a local one whatever it prefers."""
    text = str(path)
    return text if "://" in text else f"file://{Path(text).expanduser().absolute()}"


@contextmanager
def _exact_times(session: SparkSession) -> Iterator[None]:
    """Let Spark write times as they are."""
    before = {key: str(session.conf.get(key)) for key in _STAGING_SETTINGS}
    _set_all(session, _STAGING_SETTINGS)
    try:
        yield
    finally:
        _set_all(session, before)


def _set_all(session: SparkSession, settings: dict[str, str]) -> None:
    for key, value in settings.items():
        session.conf.set(key, value)


def polars_schema(schema: spark_types.StructType) -> pl.Schema:
    """Return the Polars schema of a Spark schema; refuse types that would lose."""
    return pl.Schema(_polars_fields(schema, prefix=""))


def _polars_fields(
    struct: spark_types.StructType, prefix: str
) -> dict[str, pl.DataType]:
    _check_names([f"{prefix}{field.name}" for field in struct.fields])
    return {
        field.name: _polars_type(f"{prefix}{field.name}", field.dataType)
        for field in struct.fields
    }


def _polars_type(name: str, kind: spark_types.DataType) -> pl.DataType:
    match kind:
        case spark_types.DecimalType():
            return pl.Decimal(kind.precision, kind.scale)
        case spark_types.ArrayType():
            return pl.List(_polars_type(f"{name}[]", kind.elementType))
        case spark_types.MapType():
            key = _polars_type(f"{name}.key", kind.keyType)
            return pl.Map(key, _polars_type(f"{name}.value", kind.valueType))
        case spark_types.StructType() if kind.fields:
            return pl.Struct(_polars_fields(kind, f"{name}."))
        case spark_types.StringType() if kind == spark_types.StringType():
            return pl.String()
    plain = _PLAIN_TYPES.get(type(kind))
    if plain is None:
        msg = (
            f"column {name!r} has the Spark type {kind.simpleString()}, which a frame "
            "cannot hold without loss; cast or drop it in Spark first"
        )
        raise UsageError(msg)
    return plain


def check_for_spark(schema: pl.Schema) -> None:
    """Refuse columns that Spark cannot read back from Parquet without loss."""
    _spark_schema(schema)


def _spark_schema(schema: pl.Schema) -> spark_types.StructType:
    return _struct(dict(schema), prefix="")


def _struct(fields: Mapping[str, _Type], prefix: str) -> spark_types.StructType:
    _check_names([f"{prefix}{name}" for name in fields])
    return spark_types.StructType(
        [
            spark_types.StructField(name, _spark_type(f"{prefix}{name}", dtype))
            for name, dtype in fields.items()
        ]
    )


def _spark_type(name: str, dtype: _Type) -> spark_types.DataType:
    match dtype:
        case pl.List() | pl.Array():
            return spark_types.ArrayType(_spark_type(f"{name}[]", dtype.inner))
        case pl.Map():
            key = _spark_type(f"{name}.key", dtype.key)
            return spark_types.MapType(key, _spark_type(f"{name}.value", dtype.value))
        case pl.Struct() if dtype.fields:
            return _struct({f.name: f.dtype for f in dtype.fields}, f"{name}.")
    plain = _plain_spark_type(dtype)
    if plain is None:
        msg = (
            f"column {name!r} has the type {dtype}, which Spark cannot hold without "
            "loss; cast it, for example to Int64, String, Datetime('us') or Duration('us')"
        )
        raise UsageError(msg)
    return plain


def _plain_spark_type(dtype: _Type) -> spark_types.DataType | None:
    match dtype:
        case pl.Decimal():
            return spark_types.DecimalType(dtype.precision or 38, dtype.scale)
        case pl.Datetime(time_unit="us" | "ms", time_zone=None):
            return spark_types.TimestampNTZType()
        case pl.Datetime(time_unit="us" | "ms"):
            return spark_types.TimestampType()
        case pl.Duration(time_unit="us"):
            return spark_types.DayTimeIntervalType()
    return _SPARK_TYPES.get(dtype.base_type())


def _check_names(names: list[str]) -> None:
    """Refuse a frame without columns, and names that Spark takes for one another."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            msg = (
                f"the columns {seen[name.lower()]!r} and {name!r} have the same name for "
                "Spark; rename one of them"
            )
            raise UsageError(msg)
        seen[name.lower()] = name
    if not names:
        msg = "a frame without columns cannot be kept in Parquet; select at least one"
        raise UsageError(msg)


def read_back(directory: str, schema: pl.Schema) -> DataFrame:
    """Return a Spark DataFrame over Parquet that a job has committed."""
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    reader = session.read.schema(_spark_schema(schema))
    return reader.option("datetimeRebaseMode", "CORRECTED").parquet(_url(directory))
