"""The verbs of streams that put windows on them, and the one for what came too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api import window_functions as windows
from millstream.api.building import located, user_location
from millstream.api.event_time import checked_timed
from millstream.api.graph import Wrapped
from millstream.api.windows import WindowedStream, WindowInput, values_of
from millstream.errors import UsageError
from millstream.plan.joins import Join, JoinSpec
from millstream.plan.nodes import DropKey, Process, Unkey
from millstream.plan.time import DropTime, InTimeOrder, LateRow, LateRows, milliseconds
from millstream.plan.windows import AnyWindow, CountWindows, GlobalWindow, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.graph import Graph
    from millstream.api.stream import Stream
    from millstream.plan.logical import Node
    from millstream.plan.time import Duration

__all__ = ["KeyedWindowVerbs", "LateVerbs", "WindowVerbs", "checked_window"]

T_co = TypeVar("T_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
N_co = TypeVar("N_co", covariant=True)
U_co = TypeVar("U_co", covariant=True)
L_co = TypeVar("L_co", covariant=True)


class WindowVerbs(Wrapped, Generic[T_co]):
    """Windows over all rows of a stream."""

    def window(
        self, window: AnyWindow, *, allowed_lateness: Duration = 0
    ) -> WindowedStream[
        T_co,
        Stream[Any],
        Stream[T_co],
        Stream[int],
        Stream[set[T_co]],
        Stream[list[T_co]],
    ]:
        """Put all rows into windows, in one task; a verb of `WindowedStream` follows.

        `window` is made by a function of `millstream.windows`.  For `allowed_lateness`
        after its end a window of event time still takes rows, and gives its result anew.

        moves data: yes, to one task · state: of windows that are not over · waits: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("window")
        >>> numbers = flow.from_iterable(range(7))
        >>> sums = numbers.window(ms.windows.count(4, 2)).sum().collect()
        >>> _ = flow.run(on="local")
        >>> sums.result()
        [6, 14]
        """
        given = checked_window(
            self._graph, self._node, window, allowed_lateness, keys=False
        )
        return WindowedStream(given, self._of_window)

    def _of_window(self, node: Node) -> Stream[Any]:
        return values_of(self._graph, node)

    def sliding_count_reduce(
        self,
        function: Callable[[T_co, T_co], T_co],
        size: int,
        slide: int,
        *,
        name: str | None = None,
    ) -> Stream[T_co]:
        """Reduce the last `size` rows, every `slide` rows; RStream's verb.

        At the end of the input, windows that are not full are reduced as well.

        moves data: yes, to one task · state: `size` rows or fewer · waits: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sliding_count_reduce")
        >>> numbers = flow.from_iterable(range(5))
        >>> sums = numbers.sliding_count_reduce(lambda x, y: x + y, 3, 2).collect()
        >>> _ = flow.run(on="local")
        >>> sums.result()
        [3, 9, 4]
        """
        given = windows.count(size, slide, exact=False)
        return self.window(given).reduce(function, name=name)

    def sliding_p_time_reduce(
        self,
        function: Callable[[T_co, T_co], T_co],
        size: Duration,
        slide: Duration,
        *,
        name: str | None = None,
    ) -> Stream[T_co]:
        """Reduce the rows of the last `size` of processing time, every `slide`.

        moves data: yes, to one task · state: a row per `slide` · waits: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sliding_p_time_reduce")
        >>> numbers = flow.from_iterable(range(4))
        >>> sums = numbers.sliding_p_time_reduce(lambda x, y: x + y, "1h", "1h")
        >>> rows = sums.collect(sum)
        >>> _ = flow.run(on="local")
        >>> rows.result()
        6
        """
        given = windows.sliding(size, slide, time="processing")
        return self.window(given).reduce(function, name=name)

    def sliding_e_time_reduce(
        self,
        function: Callable[[T_co, T_co], T_co],
        size: Duration,
        slide: Duration,
        *,
        name: str | None = None,
    ) -> Stream[T_co]:
        """Reduce the rows of `size` of event time, every `slide`.

        moves data: yes, to one task · state: a row per `slide` · waits: for time

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sliding_e_time_reduce")
        >>> timed = flow.from_iterable([1, 4, 12]).event_time(lambda i: i)
        >>> sums = timed.sliding_e_time_reduce(lambda x, y: x + y, 10, 5).collect()
        >>> _ = flow.run(on="local")
        >>> sums.result()
        [5, 5, 12, 12]
        """
        given = windows.sliding(size, slide)
        return self.window(given).reduce(function, name=name)


class KeyedWindowVerbs(Wrapped, Generic[V_co, S_co, R_co, N_co, U_co, L_co]):
    """Windows of every key; what their results are, `WindowedStream` says."""

    def window(
        self, window: AnyWindow, *, allowed_lateness: Duration = 0
    ) -> WindowedStream[V_co, S_co, R_co, N_co, U_co, L_co]:
        """Put the values of every key into windows; a verb of `WindowedStream` follows.

        `window` is made by a function of `millstream.windows`.  For `allowed_lateness`
        after its end a window of event time still takes rows, and gives its result anew.

        moves data: no · state: of windows that are not over · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("window")
        >>> parity = flow.from_iterable(range(8)).key_by(lambda i: i % 2)
        >>> sums = parity.window(ms.windows.count(2)).sum().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(sums.result())
        [(0, 2), (0, 10), (1, 4), (1, 12)]
        """
        given = checked_window(
            self._graph, self._node, window, allowed_lateness, keys=True
        )
        return WindowedStream(given, self._of_window)

    def _of_window(self, node: Node) -> S_co:
        """Return what is made of the results of a window."""
        raise NotImplementedError

    def sliding_count_reduce(
        self,
        function: Callable[[V_co, V_co], V_co],
        size: int,
        slide: int,
        *,
        name: str | None = None,
    ) -> R_co:
        """Reduce the last `size` values of a key, every `slide`; RStream's verb.

        At the end of the input, windows that are not full are reduced as well.

        moves data: no · state: `size` values or fewer per key · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sliding_count_reduce")
        >>> parity = flow.from_iterable(range(5)).group_by(lambda i: i % 2)
        >>> sums = parity.sliding_count_reduce(lambda x, y: x + y, 3, 2).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(sums.result())
        [(0, 4), (0, 6), (1, 4)]
        """
        given = windows.count(size, slide, exact=False)
        return self.window(given).reduce(function, name=name)

    def sliding_p_time_reduce(
        self,
        function: Callable[[V_co, V_co], V_co],
        size: Duration,
        slide: Duration,
        *,
        name: str | None = None,
    ) -> R_co:
        """Reduce the values of a key of the last `size` of processing time.

        moves data: no · state: a value per key and `slide` · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sliding_p_time_reduce")
        >>> parity = flow.from_iterable(range(4)).group_by(lambda i: i % 2)
        >>> sums = parity.sliding_p_time_reduce(lambda x, y: x + y, "100ms", "20ms")
        >>> handle = sums.collect()
        """
        given = windows.sliding(size, slide, time="processing")
        return self.window(given).reduce(function, name=name)

    def sliding_e_time_reduce(
        self,
        function: Callable[[V_co, V_co], V_co],
        size: Duration,
        slide: Duration,
        *,
        name: str | None = None,
    ) -> R_co:
        """Reduce the values of a key of `size` of event time, every `slide`.

        moves data: no · state: a value per key and `slide` · waits: for time

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sliding_e_time_reduce")
        >>> timed = flow.from_iterable([1, 4, 12]).event_time(lambda i: i)
        >>> parity = timed.group_by(lambda i: i % 2)
        >>> sums = parity.sliding_e_time_reduce(lambda x, y: x + y, 10, 10).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(sums.result())
        [(0, 4), (0, 12), (1, 1)]
        """
        given = windows.sliding(size, slide)
        return self.window(given).reduce(function, name=name)


class LateVerbs(Wrapped):
    """What came too late for the verb that made a stream."""

    def late(self, *, name: str | None = None) -> Stream[LateRow]:
        """Return the rows that came too late for the window or join before it.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("late")
        >>> timed = flow.from_iterable([1, 25, 2]).event_time(lambda i: i)
        >>> counts = timed.window(ms.windows.tumbling(10)).count()
        >>> rows, late = counts.collect(), counts.late().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result(), late.result()
        ([1, 1], [LateRow(key=None, value=2, timestamp=2)])
        """
        of = _late_for(self._graph, self._node)
        if of is None:
            msg = (
                f"`late` at {user_location()} follows `{self._node.verb}` at "
                f"{self._node.location}, for which no row is ever too late; call it on "
                "the result of a window or a join in event time"
            )
            raise UsageError(msg)
        node = self._graph.add(
            "late", LateRows(of.id), (of.id,), name=name, takes_times=False
        )
        return self._graph.stream(node)


def _late_for(graph: Graph, node: Node) -> Node | None:
    """Return the operator of a verb for which rows may be too late, if it has one."""
    verb = node.verb
    while node.verb in (verb, "drop_time"):
        spec = node.spec
        if isinstance(spec, Process) and spec.in_time_order:
            return node
        if isinstance(spec, Join):
            return None
        if node.takes_times and isinstance(spec, Windowed | InTimeOrder | JoinSpec):
            is_ordered = isinstance(spec, Windowed) and isinstance(
                spec.window, GlobalWindow
            )
            if not is_ordered:
                return node
        elif not isinstance(spec, Windowed | DropKey | DropTime | Unkey):
            return None
        node = graph.plan.nodes[node.inputs[0]]
    return None


def checked_window(
    graph: Graph, node: Node, window: object, lateness: Duration, *, keys: bool
) -> WindowInput:
    """Refuse what is no window for this stream."""
    if not isinstance(window, AnyWindow):
        msg = (
            f"`window` at {user_location()} takes a window such as windows.count(10) or "
            f"windows.tumbling('10s'), got {window!r}"
        )
        raise UsageError(msg)
    with located("window"):
        lateness_ms = milliseconds(lateness)
        is_event = not isinstance(window, CountWindows) and window.time == "event"
        if is_event:
            checked_timed(node)
        if lateness_ms and (not is_event or isinstance(window, GlobalWindow)):
            msg = (
                "only windows of event time wait for late rows; leave out "
                f"allowed_lateness={lateness!r}"
            )
            raise UsageError(msg)
    return WindowInput(graph, node, keys, window, lateness_ms)
