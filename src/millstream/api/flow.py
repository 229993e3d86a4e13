"""A flow: the user's program, built verb by verb and then run."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from millstream.api.building import (
    checked_connector,
    checked_count,
    checked_function,
    located,
    user_location,
)
from millstream.api.stream import Stream
from millstream.config import BufferPolicy, Config, configured, nanoseconds
from millstream.connectors.base import Source
from millstream.connectors.iterable import IterableSource, ParallelSource
from millstream.connectors.text import TextSource
from millstream.errors import UsageError
from millstream.launch.job import Job
from millstream.launch.options import (
    LaunchOptions,
    intercepted,
    merged_options,
    observed,
)
from millstream.plan.explain import explain_mermaid, explain_text
from millstream.plan.logical import LogicalPlan, Node
from millstream.plan.nodes import DeadLetterLimit, DeadLetters, Map, Read
from millstream.plan.stages import plan_stages
from millstream.plan.timed import dropping_time, makes_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta
    from pathlib import Path

    from millstream.api.frame import Frame
    from millstream.api.frame_reading import FileFrame
    from millstream.api.handles import ResultHandle
    from millstream.operators.dead_letters import DeadLetter
    from millstream.plan.spec import Spec

__all__ = ["Flow"]

T = TypeVar("T")


class Flow:
    """A dataflow program.

    Parameters
    ----------
    name
        What Spark's pages, messages and the log call it.
    buffer
        How output buffers are sent, for all streams that do not say otherwise:
        `fixed` or `adaptive`.

    Examples
    --------
    >>> import millstream as ms
    >>> flow = ms.Flow("word-count")
    >>> lines = flow.from_iterable(["to be or", "not to be"])
    >>> counts = lines.flat_map(str.split).group_by(str.lower).count().collect()
    >>> _ = flow.run(on="local")
    >>> sorted(counts.result())
    [('be', 2), ('not', 1), ('or', 1), ('to', 2)]
    """

    def __init__(self, name: str, *, buffer: BufferPolicy | None = None) -> None:
        given: object = name
        if not isinstance(given, str) or not given:
            msg = f"`Flow` at {user_location()} takes a name as text, got {name!r}"
            raise UsageError(msg)
        policy: object = buffer
        if policy is not None and not isinstance(policy, BufferPolicy):
            msg = (
                f"`Flow` at {user_location()} takes fixed(...) or adaptive(...) as "
                f"buffer, got {policy!r}"
            )
            raise UsageError(msg)
        self.name = name
        self.plan = LogicalPlan(name, location=user_location())
        self._buffer = buffer
        self._handles: list[ResultHandle[Any]] = []
        self._last_job: Job | None = None

    # Sources

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
        from millstream.api.frame import Frame  # noqa: PLC0415 - loads Polars
        from millstream.api.frame_given import given_frame  # noqa: PLC0415
        from millstream.connectors.frame import DataFrameSource  # noqa: PLC0415

        with located("from_frame"):
            rows = given_frame(frame)
        source = DataFrameSource(rows)
        node = self.add("from_frame", Read(source), (), name=name, makes_frames=True)
        return Frame(self, node, rows.schema)

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
            self,
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

        return frame_reading.read_parquet(self, paths, columns=columns, name=name)

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
            self, paths, schema=schema, max_bad_rows=max_bad_rows, name=name
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
            self, paths, max_bad_rows=max_bad_rows, name=name
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

        return frame_from_spark(self, frame, staging, name)

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

        return frame_from_spark_stream(self, frame, trigger, staging, name)

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

    # Records that make a function raise

    def dead_letters(
        self, max_dead_letters: int, *, name: str | None = None
    ) -> Stream[DeadLetter]:
        """Go on without records that make a function raise; return them as a stream.

        It holds for all functions of one row, or of one batch, in the whole flow, but
        for those that follow from the dead letters themselves.  Each letter comes
        exactly once, as all rows do.  Without this verb the first such record fails
        the job.

        moves data: letters, to one task · state: a number · waits for the end: no

        Parameters
        ----------
        max_dead_letters
            The most letters that the job may have; one more fails it.
        name
            What messages and plans call it.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("dead_letters")
        >>> numbers = flow.from_iterable(["1", "two", "3"]).map(int).collect()
        >>> letters = flow.dead_letters(max_dead_letters=10).collect()
        >>> _ = flow.run(on="local")
        >>> numbers.result()
        [1, 3]
        >>> [(letter.operator, letter.record) for letter in letters.result()]
        [('map', 'two')]
        """
        checked_count("dead_letters", "max_dead_letters", max_dead_letters)
        before = [n for n in self.plan.nodes if isinstance(n.spec, DeadLetters)]
        if before:
            msg = (
                f"`dead_letters` at {user_location()} is there already, at "
                f"{before[0].location}; a flow has it once, so use that stream again"
            )
            raise UsageError(msg)
        node = self.add("dead_letters", DeadLetters(), (), name=name, width=1)
        budget = DeadLetterLimit(max_dead_letters)
        budget_name = f"{node.name}.budget"
        self.add("dead_letters", budget, (node.id,), name=budget_name, width=1)
        return Stream(self, node)

    # Running

    def start(
        self,
        *,
        on: Literal["spark", "local", "processes"] | None = None,
        spark: Any = None,
        master: str | None = None,
        workers: int | None = None,
        insecure: bool = False,
        state: str | os.PathLike[str] | None = None,
        snapshot_every: str | timedelta | None = None,
        resume_from: str | os.PathLike[str] | None = None,
        state_backend: Literal["memory", "rocksdb"] | None = None,
        state_key: bytes | Callable[[], bytes] | None = None,
        drop_state: bool = False,
        repeat_output: bool = False,
        **settings: Any,
    ) -> Job:
        """Start the flow and return at once.

        Parameters
        ----------
        on
            ``"spark"`` (the default), ``"local"`` (this process, no Java) or
            ``"processes"`` (plain processes on this machine, no Java).
        spark
            A `SparkSession` to run on; otherwise one is made.
        master
            Spark master for a session that is made here; ``local[*]`` by default.
        workers
            Number of workers; by default one per task slot of Spark, and one on
            ``"local"``.
        insecure
            Do without protection: Spark need not guard the job's secret, and the
            connections of the job are neither encrypted nor authenticated frame by
            frame, so whoever is on the way can read the rows and run code in the
            workers.  A warning is logged.
        state
            Directory or fsspec URL for snapshots, which all workers must reach.  With
            it the job survives lost workers and failing functions, and the same
            program started again with the same directory goes on where it was.
        snapshot_every
            Time between two snapshots; 5 s by default.
        resume_from
            A savepoint, or the state directory of another job, to begin with.
        state_backend
            Where state is kept while the job runs: ``"memory"`` (the default) or
            ``"rocksdb"`` for more than fits in memory.
        state_key
            The 32 bytes that prove snapshots, or a function that fetches them, called in
            the driver; else ``MILLSTREAM_STATE_KEY``, else a key that lies in `state`.
        drop_state
            Begin without the state of operators that the flow does not have any more.
        repeat_output
            Begin with `resume_from` although a sink has committed rows after it, which
            are then written a second time; for output that was removed by hand.
        settings
            Fields of `millstream.config.Config`.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("start")
        >>> total = flow.from_iterable([1, 2]).sum()
        >>> job = flow.start(on="local")
        >>> job.wait()
        True
        """
        return self._start(
            "start",
            LaunchOptions(
                on=on,
                spark=spark,
                master=master,
                workers=workers,
                insecure=insecure,
                state=_path(state),
                resume_from=_path(resume_from),
                state_backend=state_backend,
                state_key=state_key,
                drop_state=drop_state,
                repeat_output=repeat_output,
                settings=_with_interval(settings, snapshot_every),
            ),
        )

    def run(
        self,
        *,
        on: Literal["spark", "local", "processes"] | None = None,
        spark: Any = None,
        master: str | None = None,
        workers: int | None = None,
        insecure: bool = False,
        state: str | os.PathLike[str] | None = None,
        snapshot_every: str | timedelta | None = None,
        resume_from: str | os.PathLike[str] | None = None,
        state_backend: Literal["memory", "rocksdb"] | None = None,
        state_key: bytes | Callable[[], bytes] | None = None,
        drop_state: bool = False,
        repeat_output: bool = False,
        **settings: Any,
    ) -> Job:
        """Start the flow, wait for its end, and return the job; see `start`.

        ``MILLSTREAM_LOG=info`` logs what the job decides and how far it has come; the
        error of a job that failed carries it as `story`.

        Raises
        ------
        OperatorError
            If a user function raised.
        OperationalError
            If a worker was lost or could not be started.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("run")
        >>> total = flow.from_iterable(range(4)).sum()
        >>> flow.run(on="local", workers=2).status()
        'succeeded'
        >>> total.result()
        6
        """
        job = self._start(
            "run",
            LaunchOptions(
                on=on,
                spark=spark,
                master=master,
                workers=workers,
                insecure=insecure,
                state=_path(state),
                resume_from=_path(resume_from),
                state_backend=state_backend,
                state_key=state_key,
                drop_state=drop_state,
                repeat_output=repeat_output,
                settings=_with_interval(settings, snapshot_every),
            ),
        )
        job.wait()
        return job

    @property
    def last_job(self) -> Job:
        """The job of the last `start` or `run`, also of a `run` that raised.

        Its `story`, `metrics` and `recoveries` tell what happened.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("last")
        >>> flow.from_iterable([0]).for_each(lambda i: 1 // i)
        >>> try:
        ...     flow.run(on="local")
        ... except ms.OperatorError:
        ...     flow.last_job.status()
        'failed'
        """
        if self._last_job is None:
            msg = f"flow {self.name!r} was not started; call run() or start() first"
            raise UsageError(msg)
        return self._last_job

    @property
    def handles(self) -> tuple[ResultHandle[Any], ...]:
        """The results that sinks will give back, in the order of their making.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("handles")
        >>> numbers = flow.from_iterable([1, 2])
        >>> _ = numbers.collect(), numbers.count()
        >>> [handle.name for handle in flow.handles]
        ['collect', 'count']
        """
        return tuple(self._handles)

    def explain(
        self, *, workers: int = 2, form: Literal["text", "mermaid"] = "text"
    ) -> str:
        """Return the logical plan, the stages and the tasks, as text or Mermaid.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("explain")
        >>> flow.from_iterable([1]).for_each(print)
        >>> print(flow.explain(form="mermaid"))
        flowchart LR
          subgraph stage0["stage 0 · 1 task"]
            n0["from_iterable"] --> n1["for_each"]
          end
        <BLANKLINE>
        """
        checked_count("explain", "workers", workers)
        if form not in ("text", "mermaid"):
            msg = (
                f"`explain` at {user_location()} takes 'text' or 'mermaid' as form, "
                f"got {form!r}"
            )
            raise UsageError(msg)
        self.plan.check()
        stages = plan_stages(self.plan, self.config({}))
        if form == "mermaid":
            return explain_mermaid(stages)
        return explain_text(self.plan, stages, workers)

    def __repr__(self) -> str:
        return f"<Flow {self.name!r} with {len(self.plan.nodes)} operators>"

    # For streams

    def config(self, settings: dict[str, Any]) -> Config:
        """Return the limits and defaults of a job with these settings."""
        config = configured(Config(), settings, inspect.signature(self.run).parameters)
        if self._buffer is not None and "buffer" not in settings:
            config = configured(config, {"buffer": self._buffer})
        return config

    def add(
        self,
        verb: str,
        spec: Spec,
        inputs: tuple[int, ...],
        *,
        name: str | None = None,
        **attributes: Any,
    ) -> Node:
        """Append an operator to the plan.

        Unless its attributes say what becomes of timestamps, they are kept if the
        operator can keep them and all inputs have them, and dropped before it if not.
        """
        if "takes_times" not in attributes:
            is_timed = all(self.plan.nodes[i].makes_times for i in inputs)
            if inputs and is_timed and spec.traits.keeps_time:
                attributes |= {"takes_times": True, "makes_times": True}
            else:
                inputs = tuple(self.untimed(i) for i in inputs)
        name = name or self.plan.free_name(verb)
        node = Node(
            id=len(self.plan.nodes),
            name=name,
            verb=verb,
            spec=spec,
            inputs=inputs,
            location=user_location(),
            has_default_name=self.plan.is_default(name),
            **attributes,
        )
        self.plan.add(node)
        return node

    def untimed(self, source: int, name: str | None = None) -> int:
        """Return an operator whose rows are those of `source`, without timestamps."""
        above = self.plan.nodes[source]
        if not above.makes_times:
            return source
        dropping = {
            "takes_pairs": makes_pairs(above),
            "takes_times": True,
            "makes_frames": above.makes_frames,
        }
        name = name or self.plan.free_name(f"{above.name}.untimed")
        spec = dropping_time(above)
        return self.add("drop_time", spec, (source,), name=name, **dropping).id

    def rebuffered(self, node: Node, policy: BufferPolicy) -> Node:
        """Let the output of an operator be sent by another policy."""
        self.plan.nodes[node.id] = replace(node, buffer=policy)
        return self.plan.nodes[node.id]

    def with_value(self, node: Node, function: Callable[[Any], Any]) -> Node:
        """Let what a regrouping operator moves be a function of the row."""
        self.plan.nodes[node.id] = replace(node, regroups=None)
        return self.add(
            node.verb,
            Map(function),
            (node.id,),
            name=f"{node.name}.value",
            takes_pairs=True,
            regroups=node.regroups,
        )

    def remember(self, handle: ResultHandle[Any]) -> None:
        """Keep the handle of a sink."""
        self._handles.append(handle)

    def _start(self, verb: str, said: LaunchOptions) -> Job:
        if said.workers is not None:
            checked_count(verb, "workers", said.workers)
        with located(verb):
            options = merged_options(said)
            config = self.config(options.settings)
        self.plan.check()
        intercepted(self)
        with located(verb):
            self._last_job = Job.start(self.plan, config, options)
        observed(self._last_job)
        return self._last_job

    def _read(
        self, verb: str, make: Callable[[], Source[T]], name: str | None
    ) -> Stream[T]:
        with located(verb):
            source = make()
        width = None if source.is_parallel else 1
        node = self.add(verb, Read(source), (), name=name, width=width)
        return Stream(self, node)


def _path(path: str | os.PathLike[str] | None) -> str | None:
    known: object = path
    if known is None or isinstance(known, str | os.PathLike):
        return None if path is None else os.fspath(path)
    msg = f"a state directory is a path or a URL, got {path!r}"
    raise UsageError(msg)


def _with_interval(
    settings: dict[str, Any], snapshot_every: str | timedelta | None
) -> dict[str, Any]:
    if snapshot_every is None:
        return settings
    interval_ms = max(1, nanoseconds(snapshot_every) // 1_000_000)
    return {**settings, "snapshot_every_ms": interval_ms}
