"""The sinks that write a frame to files.

Each checks the frame's schema while the flow is being built, so what a format cannot
express fails there.  Imported only when a flow uses frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.api.building import located
from millstream.api.database_sinks import FrameTableVerbs
from millstream.connectors.csv import CsvDialect, CsvSink
from millstream.connectors.files import ROLL_EVERY, ROLL_SIZE, PartOptions
from millstream.connectors.jsonl import JsonFrameSink
from millstream.connectors.parquet import ParquetSink
from millstream.connectors.text_frame import TextFrameSink
from millstream.plan.nodes import Write

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from pathlib import Path

    from millstream.connectors.base import Sink

__all__ = ["FrameSinkVerbs"]


class FrameSinkVerbs(FrameTableVerbs):
    """Verbs that end a frame in part files.

    A directory may be a URL that fsspec knows, such as ``s3://bucket/out``; it belongs to
    one sink of one job.  A part file appears when it is complete: at `roll` bytes, or
    `roll_every` after its first row, with the next snapshot, or at the end of the input.
    Without a state directory all appear when the job has succeeded.
    """

    def write_csv(
        self,
        directory: str | Path,
        *,
        header: bool = True,
        separator: str = ",",
        quote: str = '"',
        overwrite: bool = False,
        roll: str | int = ROLL_SIZE,
        roll_every: str | timedelta = ROLL_EVERY,
        name: str | None = None,
    ) -> None:
        r"""Write rows as CSV, every file with a header; nested columns are refused.

        A null is an empty field, and an empty text is two quotes.  Text with newlines is
        quoted, and must be read with ``multiline=True``.  When rows are visible see
        `Stream.write_text`.

        moves data: no · state: rows of parts that are not complete, in the directory

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.csv").write_text('n,s\n1,"a,b"\n')
        ...     flow = ms.Flow("write_csv")
        ...     flow.read_csv(f"{folder}/a.csv").write_csv(f"{folder}/out")
        ...     _ = flow.run(on="local")
        ...     [file.read_text() for file in pathlib.Path(folder, "out").glob("part*")]
        ['n,s\n1,"a,b"\n']
        """

        def make(options: PartOptions) -> CsvSink:
            dialect = CsvDialect(separator, quote, has_header=header)
            return CsvSink(directory, self.schema, dialect, **options)

        options = PartOptions(overwrite=overwrite, roll=roll, roll_every=roll_every)
        self._write_files("write_csv", make, options, name)

    def write_parquet(
        self,
        directory: str | Path,
        *,
        compression: str = "zstd",
        overwrite: bool = False,
        roll: str | int = ROLL_SIZE,
        roll_every: str | timedelta = ROLL_EVERY,
        name: str | None = None,
    ) -> None:
        """Write rows as Parquet, with their types.

        When rows are visible see `Stream.write_text`.

        moves data: no · state: rows of parts that are not complete, in the directory

        Examples
        --------
        >>> import tempfile
        >>> import millstream as ms, polars as pl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pl.DataFrame({"x": [1, 2]}).write_parquet(f"{folder}/a.parquet")
        ...     flow = ms.Flow("write_parquet")
        ...     flow.read_parquet(f"{folder}/a.parquet").write_parquet(f"{folder}/out")
        ...     _ = flow.run(on="local")
        ...     pl.read_parquet(f"{folder}/out/*.parquet")["x"].to_list()
        [1, 2]
        """

        def make(options: PartOptions) -> ParquetSink:
            schema = self.schema
            return ParquetSink(directory, schema, compression=compression, **options)

        options = PartOptions(overwrite=overwrite, roll=roll, roll_every=roll_every)
        self._write_files("write_parquet", make, options, name)

    def write_jsonl(
        self,
        directory: str | Path,
        *,
        overwrite: bool = False,
        roll: str | int = ROLL_SIZE,
        roll_every: str | timedelta = ROLL_EVERY,
        name: str | None = None,
    ) -> None:
        r"""Write every row as a JSON object on a line.

        JSON has no NaN and no infinity, so a row that holds one is refused; put
        ``fill_nan`` or a cast to text before it.  When rows are visible see
        `Stream.write_text`.

        moves data: no · state: rows of parts that are not complete, in the directory

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.csv").write_text("n,s\n1,a\n")
        ...     flow = ms.Flow("write_jsonl")
        ...     flow.read_csv(f"{folder}/a.csv").write_jsonl(f"{folder}/out")
        ...     _ = flow.run(on="local")
        ...     [file.read_text() for file in pathlib.Path(folder, "out").glob("part*")]
        ['{"n":1,"s":"a"}\n']
        """

        def make(options: PartOptions) -> JsonFrameSink:
            return JsonFrameSink(directory, self.schema, **options)

        options = PartOptions(overwrite=overwrite, roll=roll, roll_every=roll_every)
        self._write_files("write_jsonl", make, options, name)

    def write_text(
        self,
        directory: str | Path,
        *,
        overwrite: bool = False,
        roll: str | int = ROLL_SIZE,
        roll_every: str | timedelta = ROLL_EVERY,
        name: str | None = None,
    ) -> None:
        r"""Write the values of the frame's one column, which must be text, as lines.

        When rows are visible see `Stream.write_text`.

        moves data: no · state: rows of parts that are not complete, in the directory

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.txt").write_text("one\ntwo\n")
        ...     flow = ms.Flow("write_text")
        ...     flow.read_lines(f"{folder}/a.txt").write_text(f"{folder}/out")
        ...     _ = flow.run(on="local")
        ...     [file.read_text() for file in pathlib.Path(folder, "out").glob("part*")]
        ['one\ntwo\n']
        """

        def make(options: PartOptions) -> TextFrameSink:
            return TextFrameSink(directory, self.schema, **options)

        options = PartOptions(overwrite=overwrite, roll=roll, roll_every=roll_every)
        self._write_files("write_text", make, options, name)

    def _write_files(
        self,
        verb: str,
        make: Callable[[PartOptions], Sink[Any]],
        options: PartOptions,
        name: str | None,
    ) -> None:
        known = name or self._graph.plan.free_name(verb)
        with located(verb):
            sink = make({**options, "name": known})
        self._graph.add(verb, Write(sink), (self._node.id,), name=known)
