"""A Structured Streaming query as a source that goes on: what it stages is read along.

The driver starts the query before the workers start.  Each micro-batch becomes Parquet
files and a list of them in a `BatchDirectory`, and every task follows the lists: file
*i* of batch *b* belongs to split *(b + i) mod n*.  An offset is the batch's number times
2**40 plus the rows of it that the split has read, so it can be read again from anywhere.

Where the job has a state directory, the query's checkpoint and what it has staged belong
to the job's state.  A later run starts the query again where its checkpoint stands, in
as many splits as before, and reads from the offsets of its snapshot; a batch is removed
when every snapshot that is kept lies behind it.  Spark repeats the batch that it had
not committed, and the list says whether it was staged already.

The query needs a task slot of Spark's while the workers hold theirs.  How it is built is
known to `connectors.spark` alone: nothing here imports pyspark.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.batch_lists import BatchDirectory
from millstream.connectors.parquet import ParquetSource
from millstream.connectors.paths import file_size
from millstream.connectors.spark_plans import rows_in_words
from millstream.connectors.staging import Staging
from millstream.credentials import without_credentials
from millstream.errors import OperationalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.config import Config
    from millstream.connectors.batch_lists import ListedFile

__all__ = ["SparkStreamSource", "query_reason"]

_ROWS_MAX = 2**40
"""More rows than a micro-batch has."""

_LOOK_NS = 5_000_000
"""Time between two looks for the next list."""

_STOP_S = 10.0
_FOREVER = 2**62


class SparkStreamSource(Source[pl.DataFrame]):
    """The rows of a streaming Spark DataFrame, as they come.

    Parameters
    ----------
    start
        Called in the driver with the directory to fill and the number of splits;
        starts the query and returns it.
    schema
        Names and types of the columns.
    staging
        Directory that the driver and all executors share; one of this machine's
        temporary ones by default, which is enough for a local master.
    inputs
        What the query reads, in words; "" if nobody can tell.
    """

    spare_slots = 1

    def __init__(
        self,
        start: Callable[[str, int], RunningQuery],
        schema: pl.Schema,
        staging: str | None = None,
        inputs: str = "",
    ) -> None:
        self.schema = schema
        self._inputs = inputs
        self._start: Callable[[str, int], RunningQuery] | None = start
        self._staging = Staging(staging)
        self._splits: tuple[Split, ...] = ()
        self._watch: _Watch | None = None

    def identity(self) -> str:
        """Return what the query reads, and the columns that it makes of it."""
        return rows_in_words("a query of Spark's over", self._inputs, self.schema)

    def keep_in(self, directory: str | None, label: str) -> None:
        """Let the query and what it staged stay."""
        self._staging.keep_in(directory, label)

    def splits(self, task_count: int) -> list[Split]:
        """Start the query, and return one split per task."""
        self.release()
        BatchDirectory(self._staging.make()).make(is_kept=self._staging.is_kept)
        splits = [
            Split(f"stream part {part} of {task_count}", (part, task_count))
            for part in range(task_count)
        ]
        self._start_query(tuple(splits))
        return splits

    def resume(self, splits: tuple[Split, ...]) -> None:
        """Start the query again where its checkpoint stands."""
        self.suspend()
        BatchDirectory(self._staging.find()).reopen()
        self._start_query(splits)

    def _start_query(self, splits: tuple[Split, ...]) -> None:
        assert self._start is not None, "the query is started in the driver"
        assert self._staging.path is not None
        self._splits = splits
        try:
            query = self._start(self._staging.path, len(splits))
        except Exception as error:
            msg = (
                "Spark could not start the streaming query "
                f"({query_reason(str(error))}); mend the DataFrame and run the flow again"
            )
            raise OperationalError(msg) from error
        self._watch = _Watch(query, BatchDirectory(self._staging.path))

    def open(
        self, split: Split, offset: int, config: Config
    ) -> SourceReader[pl.DataFrame]:
        """Return a reader that follows the lists from the batch of `offset` on."""
        path = self._staging.path
        assert path is not None, "the query starts before anybody reads"
        return _Follower(path, split.payload, offset, self.schema, config)

    def forget(self, offsets: dict[str, int | None]) -> None:
        """Remove the batches that all splits are behind."""
        if self._staging.path is None:
            return
        reached = [offsets.get(split.name, 0) for split in self._splits]
        batches = [_FOREVER if each is None else each // _ROWS_MAX for each in reached]
        with suppress(FileNotFoundError):  # the job ended meanwhile
            BatchDirectory(self._staging.path).forget(min(batches, default=0))

    def suspend(self) -> None:
        """Stop the query, and leave what it staged."""
        self._stop_query()
        self._staging.leave()

    def release(self) -> None:
        """Stop the query, and remove what it staged."""
        self._stop_query()
        self._staging.remove()

    def _stop_query(self) -> None:
        if self._staging.path is not None:
            BatchDirectory(self._staging.path).close()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def __getstate__(self) -> dict[str, object]:
        """Leave behind what only the driver can use."""
        return {**self.__dict__, "_start": None, "_watch": None}


class RunningQuery(Protocol):
    """What is used of a streaming query of Spark's."""

    @property
    def name(self) -> str | None:
        """What it is called."""
        ...

    def stop(self) -> None:
        """End it."""
        ...

    def awaitTermination(self) -> object:  # noqa: N802 - Spark's name
        """Wait for its end; raises what it failed with."""
        ...


class _Watch:
    """Waits in the driver for the end of a query, and writes it down."""

    def __init__(self, query: RunningQuery, directory: BatchDirectory) -> None:
        self._query = query
        self._directory = directory
        self._thread = threading.Thread(
            target=self._run, name=f"millstream-query-{query.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        with suppress(Exception):  # a session that was stopped has no queries either
            self._query.stop()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        error = None
        try:
            self._query.awaitTermination()
        except Exception as failure:  # noqa: BLE001 - handed to whoever reads
            error = query_reason(str(failure) or type(failure).__name__)
        with suppress(FileNotFoundError):  # it was removed, so nobody reads
            if not self._directory.is_closed:
                self._directory.finish(error)


class _Follower(SourceReader[pl.DataFrame]):
    """Reads one split: its files of every batch that is listed."""

    def __init__(
        self,
        directory: str,
        part: tuple[int, int],
        offset: int,
        schema: pl.Schema,
        config: Config,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._directory = BatchDirectory(directory)
        if not self._directory.path.is_dir():
            msg = (
                f"{directory}, which the driver made, is not there on this worker; name "
                "a staging= directory that the driver and all executors share"
            )
            raise FileNotFoundError(msg)
        self._part, self._part_count = part
        self._schema = schema
        self._config = config
        self._now_ns = now_ns
        self._batch, self._skip = divmod(offset, _ROWS_MAX)
        self._rows = self._skip
        self._frames: Iterator[pl.DataFrame] | None = None
        self._look_ns = 0
        self._directory.mark_read(self._part, self._batch - 1)

    def read(self, rows: int) -> pl.DataFrame | list[pl.DataFrame] | None:  # noqa: ARG002
        if self._frames is None:
            now_ns = self._now_ns()
            if now_ns < self._look_ns:
                return []
            files = self._directory.listed(self._batch)
            if files is None:
                self._look_ns = now_ns + _LOOK_NS
                return None if self._is_over() else []
            self._frames = self._read_files(files)
        frame = next(self._frames, None)
        if frame is None:
            self._directory.mark_read(self._part, self._batch)
            self._batch, self._rows, self._frames = self._batch + 1, 0, None
            return []
        self._rows += frame.height
        return frame

    @property
    def offset(self) -> int:
        return self._batch * _ROWS_MAX + self._rows

    def close(self) -> None:
        """Hold the query up no longer."""
        self._frames = None
        with suppress(FileNotFoundError):
            self._directory.mark_read(self._part, _FOREVER)

    def _is_over(self) -> bool:
        end = self._directory.end()
        if end is None or self._batch < end.batch_count:
            return False
        if end.error is not None:
            msg = (
                f"Spark's streaming query ended after {end.batch_count} batches "
                f"({end.error}); mend the query and run the flow again"
            )
            raise RuntimeError(msg)
        return True

    def _read_files(self, files: list[ListedFile]) -> Iterator[pl.DataFrame]:
        skip, self._skip = self._skip, 0
        for number, file in enumerate(files, self._batch):
            if number % self._part_count != self._part:
                continue
            for frame in self._read_file(file):
                rest = frame.slice(skip)
                skip -= frame.height - rest.height
                if rest.height:
                    yield rest

    def _read_file(self, file: ListedFile) -> Iterator[pl.DataFrame]:
        path = str(file.path)
        size = file_size(path)
        if size != file.byte_count:
            msg = f"{path} has {size} bytes and was listed with {file.byte_count}"
            raise ValueError(msg)
        source = ParquetSource(path)
        for split in source.splits(1):
            reader: Any = source.open(split, 0, self._config)
            try:
                while (frame := reader.read(0)) is not None:
                    yield frame.cast(dict(self._schema))
            finally:
                reader.close()


def query_reason(text: str) -> str:
    r"""Return what a person needs of a failed query's message.

    Examples
    --------
    >>> query_reason(
    ...     "[X] Query [id = 1] terminated with exception: no file. SQLSTATE: 4"
    ... )
    'no file'
    >>> query_reason(
    ...     "An error occurred while calling o7.parquet.\n: a.BadError: no\n\tat"
    ... )
    'BadError: no'
    """
    text = text.partition("=== Streaming Query ===")[0]
    text = re.sub(r"\AAn error occurred while calling \S+\s+: ", "", text)
    python_errors: list[str] = re.findall(
        r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", text, re.MULTILINE
    )
    if python_errors:
        reason = python_errors[-1]
    else:
        reason = text.partition("terminated with exception: ")[2] or text
    reason = re.sub(r"\s*SQLSTATE: \w+", "", reason.strip().partition("\n")[0])
    return without_credentials(reason).rstrip(".")
