"""The verbs that a flow begins with: what it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from millstream.api.building import checked_connector, checked_function, located
from millstream.connectors.base import Source
from millstream.connectors.iterable import IterableSource, ParallelSource
from millstream.connectors.text import TextSource
from millstream.plan.nodes import Read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta
    from pathlib import Path

    from millstream.api.frame import Frame
    from millstream.api.frame_reading import FileFrame
    from millstream.api.graph import Graph
    from millstream.api.stream import Stream

__all__ = ["SourceVerbs"]

T = TypeVar("T")


class SourceVerbs:
    """Sources of rows and of frames."""

    _graph: Graph

    def from_iterable(
        self, items: Iterable[T] | Callable[[], Iterable[T]], *, name: str | None = None
    ) -> Stream[T]:
        """Read a collection, or what a function returns, in one task.

        Rows are dealt out to all workers after the source.  `items` is read again after
        a failure, so an iterator that can be read only once is refused.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("numbers")
        >>> numbers = flow.from_iterable(range(4)).collect()
        >>> _ = flow.run(on="local")
        >>> numbers.result()
        [0, 1, 2, 3]
        """
        if callable(items) and not hasattr(items, "__iter__"):
            checked_function("from_iterable", items)
        return self._read("from_iterable", lambda: IterableSource(items), name)

    def from_parallel(
        self, function: Callable[[int, int], Iterable[T]], *, name: str | None = None
    ) -> Stream[T]:
        """Read what ``function(rank, size)`` returns, in every task of the source.

        `rank` goes from 0 to `size` - 1, and `size` is the number of workers.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("ranks")
        >>> tens = flow.from_parallel(
        ...     lambda rank, size: range(10 * rank, 10 * rank + 3)
        ... )
        >>> rows = tens.collect()
        >>> _ = flow.run(on="local", workers=2)
        >>> sorted(rows.result())
        [0, 1, 2, 10, 11, 12]
        """
        checked_function("from_parallel", function)
        return self._read("from_parallel", lambda: ParallelSource(function), name)

    def read_text(
        self,
        paths: str | Path | list[str | Path],
        *,
        encoding: str = "utf-8",
        errors: Literal["strict", "replace", "ignore"] = "strict",
        name: str | None = None,
    ) -> Stream[str]:
        r"""Read the lines of text files; one big file is read by all workers.

        `paths` may be a file, a directory, a glob pattern, or a list of these; each of
        them may be a URL that fsspec knows, such as ``s3://bucket/books/*.txt``.
        `errors` is what happens to bytes that are not of the `encoding`, as in `open`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.txt").write_text("one\ntwo\n")
        ...     flow = ms.Flow("read_text")
        ...     lines = flow.read_text(f"{folder}/*.txt").collect()
        ...     _ = flow.run(on="local")
        >>> lines.result()
        ['one', 'two']
        """
        make = lambda: TextSource(paths, encoding=encoding, errors=errors)  # noqa: E731 - tried below
        return self._read("read_text", make, name)

    def from_frame(self, frame: Any, *, name: str | None = None) -> Frame:
        """Read a data frame in memory, every task a part of it.

        It is one of Polars, lazy ones included, which are collected here; of pandas,
        whose NaN are null and whose index must have no name; or a table or record batch
        of Arrow.

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("frame")
        >>> rows = flow.from_frame(pl.DataFrame({"x": [1, 2, 3]})).collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()["x"].to_list()
        [1, 2, 3]
        """
        from millstream.api.frame_given import given_frame  # noqa: PLC0415
        from millstream.connectors.frame import DataFrameSource  # noqa: PLC0415

        with located("from_frame"):
            rows = given_frame(frame)
        source = DataFrameSource(rows)
        node = self._graph.add(
            "from_frame", Read(source), (), name=name, makes_frames=True
        )
        return self._graph.frame(node, rows.schema)

    def read_csv(
        self,
        paths: str | Path | list[str | Path],
        *,
        schema: Mapping[str, Any] | None = None,
        header: bool = True,
        separator: str = ",",
        quote: str | None = '"',
        null_values: Iterable[str] = (),
        multiline: bool = False,
        max_bad_rows: int = 0,
        name: str | None = None,
    ) -> FileFrame:
        r"""Read CSV files as a frame; one big file is read by all workers.

        Parameters
        ----------
        paths
            A file, a directory, a glob pattern, or a list of these; each of them may be a
            URL that fsspec knows, such as ``s3://bucket/sales/*.csv``.
        schema
            Names and Polars types of the columns.  By default they are inferred from
            the first 64 KiB and then hold for all rows of all files.
        header
            Whether the first line of every file names the columns.
        null_values
            Texts that mean null, besides the empty field.
        multiline
            Whether a quoted field may hold newlines; then one task reads a whole file.
            Otherwise a newline always ends a row.
        max_bad_rows
            Rows that do not fit the schema fail the job when there are more of them in
            all files, whichever workers read them; up to that they are left out, and
            ``bad_rows`` of the result has them, with file and line.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms, polars as pl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.csv").write_text("n,s\n1,a\ntwo,b\n3,c\n")
        ...     flow = ms.Flow("read_csv")
        ...     schema = {"n": pl.Int64, "s": pl.String}
        ...     frame = flow.read_csv(f"{folder}/*.csv", schema=schema, max_bad_rows=1)
        ...     rows, bad = frame.collect(), frame.bad_rows.select("text").collect()
        ...     _ = flow.run(on="local")
        >>> rows.result().rows(), bad.result().rows()
        ([(1, 'a'), (3, 'c')], [('two,b',)])
        """
        from millstream.api import frame_reading  # noqa: PLC0415 - loads Polars

        return frame_reading.read_csv(
            self._graph,
            paths,
            schema=schema,
            header=header,
            separator=separator,
            quote=quote,
            null_values=null_values,
            multiline=multiline,
            max_bad_rows=max_bad_rows,
            name=name,
        )

    def read_parquet(
        self,
        paths: str | Path | list[str | Path],
        *,
        columns: Iterable[str] | None = None,
        name: str | None = None,
    ) -> FileFrame:
        """Read Parquet files as a frame, every row group in some task.

        `paths` may be a file, a directory, a glob pattern, or a list of these; all files
        must have the same columns.  Other columns than `columns` are not read at all.

        Examples
        --------
        >>> import tempfile
        >>> import millstream as ms, polars as pl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pl.DataFrame({"x": [1, 2]}).write_parquet(f"{folder}/a.parquet")
        ...     flow = ms.Flow("read_parquet")
        ...     rows = flow.read_parquet(f"{folder}/a.parquet").collect()
        ...     _ = flow.run(on="local")
        >>> rows.result()["x"].to_list()
        [1, 2]
        """
        from millstream.api import frame_reading  # noqa: PLC0415 - loads Polars

        return frame_reading.read_parquet(
            self._graph, paths, columns=columns, name=name
        )

    def read_jsonl(
        self,
        paths: str | Path | list[str | Path],
        *,
        schema: Mapping[str, Any] | None = None,
        max_bad_rows: int = 0,
        name: str | None = None,
    ) -> FileFrame:
        r"""Read files of JSON objects, one per line, as a frame.

        Keys that the schema does not name are left out, and missing ones are null.
        `paths`, `schema` and `max_bad_rows` are as in `read_csv`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
        ...     flow = ms.Flow("read_jsonl")
        ...     rows = flow.read_jsonl(f"{folder}/a.jsonl").collect()
        ...     _ = flow.run(on="local")
        >>> rows.result()["n"].to_list()
        [1, 2]
        """
        from millstream.api import frame_reading  # noqa: PLC0415 - loads Polars

        return frame_reading.read_jsonl(
            self._graph, paths, schema=schema, max_bad_rows=max_bad_rows, name=name
        )

    def read_lines(
        self,
        paths: str | Path | list[str | Path],
        *,
        max_bad_rows: int = 0,
        name: str | None = None,
    ) -> FileFrame:
        r"""Read the lines of UTF-8 text files as a frame with one column, ``line``.

        `paths` and `max_bad_rows` are as in `read_csv`; bad are lines that are not UTF-8.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.txt").write_text("one\ntwo\n")
        ...     flow = ms.Flow("read_lines")
        ...     rows = flow.read_lines(f"{folder}/a.txt").collect()
        ...     _ = flow.run(on="local")
        >>> rows.result()["line"].to_list()
        ['one', 'two']
        """
        from millstream.api import frame_reading  # noqa: PLC0415 - loads Polars

        return frame_reading.read_lines(
            self._graph, paths, max_bad_rows=max_bad_rows, name=name
        )

    def from_spark(
        self, frame: Any, *, staging: str | None = None, name: str | None = None
    ) -> Frame:
        """Read a bounded Spark DataFrame, whatever it was read or computed from.

        Spark computes it before the workers start, since they hold its task slots, and
        writes it as Parquet to a directory below `staging`: the job's state directory, or
        a temporary one of this machine, unless you name one, which all executors of a
        cluster must share.  A job that goes on from its state reads the same rows again.
        """
        from millstream.api.frame_spark import frame_from_spark  # noqa: PLC0415

        return frame_from_spark(self._graph, frame, staging, name)

    def from_spark_stream(
        self,
        frame: Any,
        *,
        trigger: str | timedelta | None = None,
        staging: str | None = None,
        name: str | None = None,
    ) -> Frame:
        """Read a streaming Spark DataFrame: what is there now, or all that ever comes.

        Without a `trigger` its source is read as far as it goes when the job starts, in
        Spark's ``availableNow`` way: the input is bounded, and staged as `from_spark`
        does it.  With one, a streaming query runs beside the workers for as long as the
        job does; it needs a task slot of its own.

        Parameters
        ----------
        frame
            A DataFrame made by ``spark.readStream``.
        trigger
            Time between the starts of two micro-batches, such as ``"1s"``; ``"0s"``
            starts the next one at once.
        staging
            Directory for the micro-batches that the driver and all executors share; by
            default one below the job's state directory, or a temporary one of this
            machine.  They stay until no snapshot needs them, or are removed with the job.
        name
            What messages and plans call it.
        """
        from millstream.api.frame_spark import frame_from_spark_stream  # noqa: PLC0415

        return frame_from_spark_stream(self._graph, frame, trigger, staging, name)

    def read(self, source: Source[T], *, name: str | None = None) -> Stream[T]:
        """Read a source of your own; see `millstream.connectors.base`.

        Examples
        --------
        >>> import millstream as ms
        >>> from millstream.connectors.iterable import IterableSource
        >>> flow = ms.Flow("read")
        >>> letters = flow.read(IterableSource("ab")).collect()
        >>> _ = flow.run(on="local")
        >>> letters.result()
        ['a', 'b']
        """
        checked_connector("read", source, Source)
        return self._read("read", lambda: source, name)

    def _read(
        self, verb: str, make: Callable[[], Source[T]], name: str | None
    ) -> Stream[T]:
        with located(verb):
            source = make()
        width = None if source.is_parallel else 1
        node = self._graph.add(verb, Read(source), (), name=name, width=width)
        return self._graph.stream(node)
