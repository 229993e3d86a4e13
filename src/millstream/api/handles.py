"""What a sink that gives something back returns while the flow is being built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.launch.boundary import public_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.graph import Graph

__all__ = ["ResultHandle"]

R = TypeVar("R")


class ResultHandle(Generic[R]):
    """Gives the result of a sink once the flow has run.

    Examples
    --------
    >>> import millstream as ms
    >>> flow = ms.Flow("handle")
    >>> total = flow.from_iterable([1, 2]).sum()
    >>> _ = flow.run(on="local")
    >>> total.result()
    3
    """

    def __init__(
        self, graph: Graph, node_id: int, name: str, shape: Callable[[list[Any]], R]
    ) -> None:
        self.name = name
        self._graph = graph
        self._node_id = node_id
        self._shape = shape

    def result(self) -> R:
        """Wait for the flow's job to end and return what the sink received.

        Raises
        ------
        UsageError
            If the flow was not started.
        MillstreamError
            If its job did not succeed.
        """
        rows = self._graph.last_job.rows(self._node_id)
        with public_errors():
            return self._shape(rows)

    def __repr__(self) -> str:
        return f"<result of {self.name!r} of flow {self._graph.name!r}>"
