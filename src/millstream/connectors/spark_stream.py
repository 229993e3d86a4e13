"""A Structured Streaming query as a source that goes on: what it stages is read along.

The driver starts the query before the workers start.  Each micro-batch becomes Parquet
files and a list of them in a `BatchDirectory`, and every task follows the lists: file
*i* of batch *b* belongs to split *(b + i) mod n*.  An offset is the batch's number times
2**40 plus the rows of it that the split has read, so it can be read again from anywhere.

The query needs a task slot of Spark's while the workers hold theirs.  How it is built is
known to `connectors.spark` alone: nothing here imports pyspark.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.batch_lists import BatchDirectory
from millstream.connectors.parquet import ParquetSource
from millstream.connectors.paths import file_size
from millstream.errors import OperationalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.config import Config
    from millstream.connectors.batch_lists import ListedFile

__all__ = ["SparkStreamSource", "new_staging", "query_reason"]

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
    """

    spare_slots = 1

    def __init__(
        self,
        start: Callable[[str, int], Any],
        schema: pl.Schema,
        staging: str | None = None,
    ) -> None:
        self.schema = schema
        self._start: Callable[[str, int], Any] | None = start
        self._staging = staging
        self._directory: str | None = None
        self._watch: _Watch | None = None

    def splits(self, task_count: int) -> list[Split]:
        """Start the query, and return one split per task."""
        assert self._start is not None, "the query is started in the driver"
        self.release()
        self._directory = new_staging(self._staging)
        directory = BatchDirectory(self._directory)
        directory.make()
        try:
            query = self._start(self._directory, task_count)
        except Exception as error:
            msg = (
                "Spark could not start the streaming query "
                f"({query_reason(str(error))}); mend the DataFrame and run the flow again"
            )
            raise OperationalError(msg) from error
        self._watch = _Watch(query, directory)
        return [
            Split(f"stream part {part} of {task_count}", (part, task_count))
            for part in range(task_count)
        ]

    def open(
        self, split: Split, offset: int, config: Config
    ) -> SourceReader[pl.DataFrame]:
        """Return a reader that follows the lists from the batch of `offset` on."""
        assert self._directory is not None, "the query starts before anybody reads"
        return _Follower(self._directory, split.payload, offset, self.schema, config)

    def release(self) -> None:
        """Stop the query, and remove what it staged."""
        if self._directory is None:
            return
        BatchDirectory(self._directory).close()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what only the driver can use."""
        return {**self.__dict__, "_start": None, "_watch": None}


class _Watch:
    """Waits in the driver for the end of a query, and writes it down."""

    def __init__(self, query: Any, directory: BatchDirectory) -> None:
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

    def read(self, rows: int) -> pl.DataFrame | list[pl.DataFrame] | None:  # type: ignore[override]  # noqa: ARG002
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


def new_staging(parent: str | None) -> str:
    """Make a directory for staged rows below `parent`, and return its absolute path."""
    if parent is not None and not Path(parent).is_dir():
        msg = (
            f"staging={parent!r} is not a directory of this machine; name one that is "
            "there and that all executors share"
        )
        raise UsageError(msg)
    below = None if parent is None else Path(parent).absolute()
    return tempfile.mkdtemp(prefix="millstream-staged-", dir=below)


def query_reason(text: str) -> str:
    """Return what a person needs of a failed query's message.

    Examples
    --------
    >>> query_reason(
    ...     "[X] Query [id = 1] terminated with exception: no file. SQLSTATE: 4"
    ... )
    'no file'
    """
    text = text.partition("=== Streaming Query ===")[0]
    python_errors: list[str] = re.findall(
        r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", text, re.MULTILINE
    )
    if python_errors:
        reason = python_errors[-1]
    else:
        reason = text.partition("terminated with exception: ")[2] or text
    return re.sub(r"\s*SQLSTATE: \w+", "", reason.strip().partition("\n")[0]).rstrip(
        "."
    )
