"""The sinks that every kind of stream has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.api.building import (
    checked_callable,
    checked_connector,
    checked_sink_function,
    located,
)
from millstream.api.database_sinks import RowTableVerbs
from millstream.api.handles import ResultHandle
from millstream.connectors.base import Sink
from millstream.connectors.files import (
    ROLL_EVERY,
    ROLL_SIZE,
    JsonLinesSink,
    PartOptions,
    TextSink,
)
from millstream.plan import nodes

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from pathlib import Path

    from millstream.plan.logical import Node
    from millstream.plan.spec import Spec

__all__ = ["SinkVerbs"]

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")


class SinkVerbs(RowTableVerbs, Generic[T_co]):
    """Verbs that end a stream; a keyed stream's rows are ``(key, value)`` pairs."""

    @overload
    def collect(self, *, name: str | None = None) -> ResultHandle[list[T_co]]: ...

    @overload
    def collect(
        self, into: Callable[[list[T_co]], R], *, name: str | None = None
    ) -> ResultHandle[R]: ...

    def collect(
        self, into: Callable[[list[T_co]], Any] = list, *, name: str | None = None
    ) -> ResultHandle[Any]:
        """Bring all rows to the driver, as a list or as what `into` makes of it.

        The order of rows that many tasks made is not defined; `sort_by` defines it.

        moves data: to the driver · state: none

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("collect")
        >>> counts = flow.from_iterable("aab").group_by(str).count().collect(dict)
        >>> _ = flow.run(on="local")
        >>> counts.result()
        {'a': 2, 'b': 1}
        """
        checked_callable("collect", into)
        node = self._sink("collect", nodes.Collect(), name)
        handle = ResultHandle(self._graph, node.id, node.name, into)
        self._graph.remember(handle)
        return handle

    def for_each(
        self, function: Callable[[T_co], object], *, name: str | None = None
    ) -> None:
        """Call the function for every row, in one task.

        moves data: yes, to one task · state: none

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("for_each")
        >>> flow.from_iterable(range(3)).for_each(print)
        >>> _ = flow.run(on="local")
        0
        1
        2
        """
        spec = nodes.ForEach(checked_sink_function("for_each", function))
        self._sink("for_each", spec, name, width=1)

    def parallel_for_each(
        self, function: Callable[[T_co], object], *, name: str | None = None
    ) -> None:
        """Call the function for every row, in the task that has it.

        moves data: no · state: none

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("parallel_for_each")
        >>> flow.from_iterable(["hello"]).parallel_for_each(print)
        >>> _ = flow.run(on="local")
        hello
        """
        spec = nodes.ForEach(checked_sink_function("parallel_for_each", function))
        self._sink("parallel_for_each", spec, name)

    def write_text(
        self,
        directory: str | Path,
        *,
        overwrite: bool = False,
        roll: str | int = ROLL_SIZE,
        roll_every: str | timedelta = ROLL_EVERY,
        name: str | None = None,
    ) -> None:
        r"""Write rows, which must be text, as lines of part files.

        A part file appears when it is complete: at `roll` bytes, or `roll_every` after
        its first row, with the next snapshot, or at the end of the input.  Without a
        state directory all appear when the job has succeeded.  The directory belongs to
        this sink of this job alone.

        moves data: no · state: rows of parts that are not complete, in the directory

        Parameters
        ----------
        directory
            A path, or a URL such as ``s3://bucket/out``, that driver and workers share.
        overwrite
            Replace the part files of an earlier run instead of refusing to start.
        roll
            How large a part file becomes, such as ``"128MB"``.
        roll_every
            How long rows wait for others, such as ``"5min"``; ``"0s"`` makes a part file
            per task and snapshot.
        name
            What messages, plans and part files call it.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     flow = ms.Flow("write_text")
        ...     flow.from_iterable(["one", "two"]).write_text(f"{folder}/out")
        ...     _ = flow.run(on="local")
        ...     [file.read_text() for file in pathlib.Path(folder, "out").glob("part*")]
        ['one\ntwo\n']
        """
        known = name or self._graph.plan.free_name("write_text")
        options = PartOptions(
            overwrite=overwrite, name=known, roll=roll, roll_every=roll_every
        )
        self._write("write_text", lambda: TextSink(directory, **options), known)

    def write_jsonl(
        self,
        directory: str | Path,
        *,
        overwrite: bool = False,
        roll: str | int = ROLL_SIZE,
        roll_every: str | timedelta = ROLL_EVERY,
        name: str | None = None,
    ) -> None:
        r"""Write every row as a line of JSON; when it is visible see `write_text`.

        JSON has no NaN and no infinity, so a row that holds one is refused; map it to
        None, or to text, before.

        moves data: no · state: rows of parts that are not complete, in the directory

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     flow = ms.Flow("write_jsonl")
        ...     flow.from_iterable([{"n": 1}]).write_jsonl(f"{folder}/out")
        ...     _ = flow.run(on="local")
        ...     [file.read_text() for file in pathlib.Path(folder, "out").glob("part*")]
        ['{"n": 1}\n']
        """
        known = name or self._graph.plan.free_name("write_jsonl")
        options = PartOptions(
            overwrite=overwrite, name=known, roll=roll, roll_every=roll_every
        )
        self._write("write_jsonl", lambda: JsonLinesSink(directory, **options), known)

    def write(self, sink: Sink[T_co], *, name: str | None = None) -> None:
        """Write to a sink of your own; see `millstream.connectors.base`.

        moves data: to one task if the sink is not parallel · state: the sink's

        Examples
        --------
        >>> import millstream as ms
        >>> class Printer(ms.Sink, ms.SinkWriter):
        ...     def open(self, job, task):
        ...         return self
        ...
        ...     def write(self, rows):
        ...         print(rows)
        >>> flow = ms.Flow("write")
        >>> flow.from_iterable([1, 2]).write(Printer())
        >>> _ = flow.run(on="local")
        [1, 2]
        """
        checked_connector("write", sink, Sink)
        self._write("write", lambda: sink, name)

    def _write(
        self, verb: str, make: Callable[[], Sink[Any]], name: str | None
    ) -> None:
        with located(verb):
            sink = make()
        width = None if sink.is_parallel else 1
        self._sink(verb, nodes.Write(sink), name, width=width)

    def _sink(
        self, verb: str, spec: Spec, name: str | None, *, width: int | None = None
    ) -> Node:
        return self._graph.add(verb, spec, (self._node.id,), name=name, width=width)
