"""Spark DataFrames as a source, and frames as Spark DataFrames.

Workers hold Spark's task slots, so nothing of Spark may have to run while they do.  A
DataFrame is therefore *staged*: computed by Spark before the workers start and written
as Parquet, from which every task reads its row groups, as often as it must.  The way
back is the same: the flow's output is Parquet, and a DataFrame reads it.

Beside `launch.spark` this is the only module that imports pyspark.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.parquet import ParquetSource
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.config import Config

__all__ = [
    "SparkSource",
    "check_for_spark",
    "polars_schema",
    "read_back",
    "written_frame",
    "written_stream",
]

_PLAIN_TYPES: dict[type[Any], Any] = {
    spark_types.ByteType: pl.Int8(),
    spark_types.ShortType: pl.Int16(),
    spark_types.IntegerType: pl.Int32(),
    spark_types.LongType: pl.Int64(),
    spark_types.FloatType: pl.Float32(),
    spark_types.DoubleType: pl.Float64(),
    spark_types.StringType: pl.String(),
    spark_types.BooleanType: pl.Boolean(),
    spark_types.BinaryType: pl.Binary(),
    spark_types.DateType: pl.Date(),
    spark_types.TimestampType: pl.Datetime("us", "UTC"),
    spark_types.TimestampNTZType: pl.Datetime("us"),
}
"""A timestamp of Spark's is an instant; the zone in which it is shown is the session's."""

_UNKNOWN_TO_SPARK = (pl.Time, pl.Duration, pl.Int128, pl.UInt128, pl.Null, pl.Object)


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
    """

    is_bounded = True

    def __init__(
        self, write: Callable[[str], None], schema: Any, staging: str | None = None
    ) -> None:
        self.schema = polars_schema(schema)
        self._write: Callable[[str], None] | None = write
        self._staging = staging
        self._directory: str | None = None
        self._staged: ParquetSource | None = None

    def splits(self, task_count: int) -> list[Split]:
        """Let Spark compute the rows, and return their row groups."""
        assert self._write is not None, "rows are staged in the driver"
        self.release()
        self._directory = tempfile.mkdtemp(
            prefix="millstream-staged-", dir=self._staging
        )
        rows = Path(self._directory) / "rows"
        self._write(str(rows))
        self._staged = ParquetSource(rows)
        return self._staged.splits(task_count)

    def open(
        self, split: Split, offset: int, config: Config
    ) -> SourceReader[pl.DataFrame]:
        """Return a reader of a row group of the staged rows."""
        assert self._staged is not None, "rows are staged before anybody reads them"
        return self._staged.open(split, offset, config)

    def release(self) -> None:
        """Remove the staged rows."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what only the driver can use."""
        return {**self.__dict__, "_write": None}


def written_frame(frame: Any) -> Callable[[str], None]:
    """Return what writes a Spark DataFrame as Parquet."""

    def write(directory: str) -> None:
        with _exact_instants(frame.sparkSession):
            frame.write.parquet(directory)

    return write


def written_stream(stream: Any) -> Callable[[str], None]:
    """Return what writes all that a streaming DataFrame's source has now."""

    def write(directory: str) -> None:
        with _exact_instants(stream.sparkSession):
            query = (
                stream.writeStream.format("parquet")
                .option("checkpointLocation", f"{directory}-checkpoint")
                .trigger(availableNow=True)
                .start(directory)
            )
            query.awaitTermination()

    return write


@contextmanager
def _exact_instants(session: Any) -> Iterator[None]:
    """Let Spark write timestamps as microseconds, not in its old 96-bit form."""
    key = "spark.sql.parquet.outputTimestampType"
    before = session.conf.get(key)
    session.conf.set(key, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        session.conf.set(key, before)


def polars_schema(schema: Any) -> pl.Schema:
    """Return the Polars schema of a Spark schema; refuse types that would lose."""
    return pl.Schema(
        {
            field.name: _polars_type(field.name, field.dataType)
            for field in schema.fields
        }
    )


def _polars_type(name: str, kind: Any) -> Any:
    if isinstance(kind, spark_types.DecimalType):
        return pl.Decimal(kind.precision, kind.scale)
    if isinstance(kind, spark_types.ArrayType):
        return pl.List(_polars_type(f"{name}[]", kind.elementType))
    if isinstance(kind, spark_types.StructType):
        return pl.Struct(
            {f.name: _polars_type(f"{name}.{f.name}", f.dataType) for f in kind.fields}
        )
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
    for name, dtype in schema.items():
        _check_type(name, dtype)


def _check_type(name: str, dtype: Any) -> None:
    if isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            _check_type(f"{name}.{field.name}", field.dtype)
    elif isinstance(dtype, pl.List | pl.Array):
        _check_type(f"{name}[]", dtype.inner)
    elif isinstance(dtype, _UNKNOWN_TO_SPARK) or (
        isinstance(dtype, pl.Datetime) and dtype.time_unit == "ns"
    ):
        msg = (
            f"column {name!r} has the type {dtype}, which Spark cannot hold without "
            "loss; cast it, for example to Int64, String or Datetime('us')"
        )
        raise UsageError(msg)


def read_back(directory: str, session: Any = None) -> Any:
    """Return a Spark DataFrame over Parquet that a job has committed."""
    active = session or SparkSession.getActiveSession()
    if active is None:
        active = SparkSession.builder.getOrCreate()
    return active.read.parquet(directory)
