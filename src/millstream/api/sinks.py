"""The sinks that every kind of stream has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api.building import checked_function, user_location
from millstream.api.handles import ResultHandle
from millstream.connectors.files import JsonLinesSink, TextSink
from millstream.errors import UsageError
from millstream.plan import nodes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.api.flow import Flow
    from millstream.connectors.base import Sink
    from millstream.plan.nodes import Node, Spec

__all__ = ["SinkVerbs"]

T = TypeVar("T")
R = TypeVar("R")


class SinkVerbs(Generic[T]):
    """Verbs that end a stream; a keyed stream's rows are ``(key, value)`` pairs."""

    _flow: Flow
    _node: Node

    def collect(
        self, into: Callable[[list[T]], R] = list, *, name: str | None = None
    ) -> ResultHandle[R]:
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
        checked_function("collect", into)
        node = self._sink("collect", nodes.Collect(), name)
        handle = ResultHandle(self._flow, node.id, node.name, into)
        self._flow.remember(handle)
        return handle

    def for_each(
        self, function: Callable[[T], object], *, name: str | None = None
    ) -> None:
        """Call the function for every row, in one task.

        moves data: yes, to one task · state: none
        """
        spec = nodes.ForEach(checked_function("for_each", function))
        self._sink("for_each", spec, name, width=1)

    def parallel_for_each(
        self, function: Callable[[T], object], *, name: str | None = None
    ) -> None:
        """Call the function for every row, in the task that has it.

        moves data: no · state: none
        """
        spec = nodes.ForEach(checked_function("parallel_for_each", function))
        self._sink("parallel_for_each", spec, name)

    def write_text(
        self, directory: str | Path, *, overwrite: bool = False, name: str | None = None
    ) -> None:
        """Write rows, which must be text, as lines; one file per task.

        Files appear in the directory when the job has succeeded, never before.

        moves data: no · state: none
        """
        self._write("write_text", lambda: TextSink(directory, overwrite=overwrite), name)

    def write_jsonl(
        self, directory: str | Path, *, overwrite: bool = False, name: str | None = None
    ) -> None:
        """Write every row as a line of JSON; one file per task.

        Files appear in the directory when the job has succeeded, never before.

        moves data: no · state: none
        """
        make = lambda: JsonLinesSink(directory, overwrite=overwrite)  # noqa: E731 - tried
        self._write("write_jsonl", make, name)

    def write(self, sink: Sink[T], *, name: str | None = None) -> None:
        """Write to a sink of your own; see `millstream.connectors.base`.

        moves data: to one task if the sink is not parallel · state: the sink's
        """
        self._write("write", lambda: sink, name)

    def _write(
        self, verb: str, make: Callable[[], Sink[Any]], name: str | None
    ) -> None:
        try:
            sink = make()
        except UsageError as error:
            msg = f"`{verb}` at {user_location()}: {error}"
            raise UsageError(msg) from None
        width = None if sink.is_parallel else 1
        self._sink(verb, nodes.Write(sink), name, width=width)

    def _sink(
        self, verb: str, spec: Spec, name: str | None, *, width: int | None = None
    ) -> Node:
        return self._flow.add(verb, spec, (self._node.id,), name=name, width=width)
