"""What may follow the `window` verb of a stream: what becomes of a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from millstream.api.aggregating import checked_fold, checked_reduce
from millstream.api.building import checked_aggregate, checked_function
from millstream.plan.aggregate import builtin
from millstream.plan.nodes import DropKey, KeyBy, Unkey
from millstream.plan.time import InTimeOrder
from millstream.plan.windows import (
    FIRST_IN_TIME,
    LAST_IN_TIME,
    CountWindows,
    GlobalWindow,
    Windowed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.graph import Graph
    from millstream.api.stream import Stream
    from millstream.plan.aggregate import Aggregate
    from millstream.plan.logical import Node
    from millstream.plan.windows import AnyWindow, Window

__all__ = ["WindowInput", "WindowedStream", "pairs_of", "values_of"]

V_co = TypeVar("V_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
N_co = TypeVar("N_co", covariant=True)
U_co = TypeVar("U_co", covariant=True)
L_co = TypeVar("L_co", covariant=True)
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class WindowInput:
    """What a window is put on."""

    graph: Graph
    node: Node
    has_keys: bool
    window: AnyWindow
    lateness_ms: int

    @property
    def is_timed(self) -> bool:
        """Whether the window sees the timestamps of its rows."""
        window = self.window
        if isinstance(window, GlobalWindow):
            return self.node.makes_times and window.time != "processing"
        return not isinstance(window, CountWindows) and window.time == "event"

    @property
    def waits_for_order(self) -> bool:
        """Whether rows must come in the order of their timestamps."""
        if isinstance(self.window, GlobalWindow):
            return self.is_timed
        return isinstance(self.window, CountWindows) and self.node.makes_times


class WindowedStream(Generic[V_co, S_co, R_co, N_co, U_co, L_co]):
    """Values in windows; one of its verbs says what becomes of a window.

    Every window with values has a result.  Of a stream with keys every key has its own
    windows, and results belong to the key, or behind `group_by` come in pairs with it; of a
    stream without keys one task has all.
    Results of windows in event time have the last millisecond of the window as their
    timestamp; other results have none.

    For type checkers, results are an `S_co`: an `R_co` where they are of the type of the
    values, an `N_co` where they are numbers, a `U_co` and an `L_co` where they are sets and
    lists of values.
    """

    def __init__(
        self,
        given: WindowInput,
        makes: Callable[[Node], Any],
        *,
        shows_window: bool = False,
    ) -> None:
        self._given = given
        self._makes = makes
        self._shows_window = shows_window

    def with_window(self) -> WindowedStream[V_co, S_co, S_co, S_co, S_co, S_co]:
        """Let results be pairs of the `Window` and what the verb makes of it.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("with_window")
        >>> clicks = flow.from_iterable([3, 12, 14]).event_time(lambda click: click)
        >>> counts = clicks.window(ms.windows.tumbling(10)).with_window().count()
        >>> rows = counts.collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [(Window(start=0, end=10), 1), (Window(start=10, end=20), 2)]
        """
        return WindowedStream(self._given, self._makes, shows_window=True)

    def reduce(
        self, function: Callable[[V_co, V_co], V_co], *, name: str | None = None
    ) -> R_co:
        """Combine the values of a window two by two with an associative function.

        In event time they are taken in the order of their timestamps.

        state: one value per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("reduce")
        >>> letters = flow.from_iterable("abcde").window(ms.windows.count(3, 1))
        >>> rows = letters.reduce(lambda x, y: x + y).collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        ['abc', 'bcd', 'cde']
        """
        return cast(
            "R_co",
            self._made("reduce", checked_reduce(function), name, is_ordered=True),
        )

    def fold(
        self,
        initial: A,
        function: Callable[[A, V_co], A],
        *,
        merge: Callable[[A, A], A] | None = None,
        name: str | None = None,
    ) -> S_co:
        """Update a copy of `initial` with every value of a window.

        In event time values are taken in the order of their timestamps.  With `merge`,
        which joins two folded parts, overlapping windows share their parts; without it
        their values are kept until the last one is over.

        state: one value per key and pane, or all values

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("fold")
        >>> letters = flow.from_iterable("abcd").window(ms.windows.count(2))
        >>> rows = letters.fold("", lambda text, letter: letter + text).collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        ['ba', 'dc']
        """
        aggregate = checked_fold(initial, function, merge)
        return cast("S_co", self._made("fold", aggregate, name, is_ordered=True))

    def aggregate(self, aggregate: Aggregate, *, name: str | None = None) -> S_co:
        """Apply an aggregate of your own; see `millstream.Aggregate`.

        state: one value per key and pane, or all values if it cannot merge

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("aggregate")
        >>> longest = ms.Aggregate("longest", len, lambda n, w: max(n, len(w)), max)
        >>> words = flow.from_iterable(["a", "bbb", "cc", "d"])
        >>> rows = words.window(ms.windows.count(2)).aggregate(longest).collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [3, 2]
        """
        checked_aggregate(aggregate)
        return cast("S_co", self._made("aggregate", aggregate, name, is_ordered=True))

    def count(self, *, name: str | None = None) -> N_co:
        """Count the values of every window.

        state: a number per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("count")
        >>> words = flow.from_iterable("a b a a".split()).group_by(str)
        >>> rows = words.window(ms.windows.count(2, 1)).count().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [('a', 2), ('a', 2)]
        """
        return cast("N_co", self._made("count", builtin("count"), name))

    def sum(self, *, name: str | None = None) -> R_co:
        """Add up the values of every window.

        state: one value per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sum")
        >>> windows = flow.from_iterable(range(6)).window(ms.windows.count(3))
        >>> rows = windows.sum().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [3, 12]
        """
        return cast("R_co", self._made("sum", builtin("sum"), name))

    def min(self, *, name: str | None = None) -> R_co:
        """Find the smallest value of every window.

        state: one value per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("min")
        >>> windows = flow.from_iterable([4, 2, 3]).window(ms.windows.count(2, 1))
        >>> rows = windows.min().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [2, 2]
        """
        return cast("R_co", self._made("min", builtin("min"), name))

    def max(self, *, name: str | None = None) -> R_co:
        """Find the largest value of every window.

        state: one value per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("max")
        >>> windows = flow.from_iterable([4, 2, 3]).window(ms.windows.count(2, 1))
        >>> rows = windows.max().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [4, 3]
        """
        return cast("R_co", self._made("max", builtin("max"), name))

    def mean(self, *, name: str | None = None) -> S_co:
        """Compute the mean of the values of every window.

        state: sum and count per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("mean")
        >>> windows = flow.from_iterable([4, 2, 3]).window(ms.windows.count(2, 1))
        >>> rows = windows.mean().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [3.0, 2.5]
        """
        return cast("S_co", self._made("mean", builtin("mean"), name))

    def first(self, *, name: str | None = None) -> R_co:
        """Take the first value of every window; in event time the earliest.

        state: one value per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("first")
        >>> timed = flow.from_iterable([5, 3, 12]).event_time(
        ...     lambda i: i, out_of_order=9
        ... )
        >>> rows = timed.window(ms.windows.tumbling(10)).first().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [3, 12]
        """
        return cast("R_co", self._made_in_time("first", FIRST_IN_TIME, name))

    def last(self, *, name: str | None = None) -> R_co:
        """Take the last value of every window; in event time the latest.

        state: one value per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("last")
        >>> timed = flow.from_iterable([5, 3, 12]).event_time(
        ...     lambda i: i, out_of_order=9
        ... )
        >>> rows = timed.window(ms.windows.tumbling(10)).last().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [5, 12]
        """
        return cast("R_co", self._made_in_time("last", LAST_IN_TIME, name))

    def unique(self, *, name: str | None = None) -> U_co:
        """Collect the distinct values of every window into a set.

        state: a set per key and pane

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("unique")
        >>> windows = flow.from_iterable("aab").window(ms.windows.count(3))
        >>> rows = windows.unique().map(sorted).collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [['a', 'b']]
        """
        return cast("U_co", self._made("unique", builtin("unique"), name))

    def collect(self, *, name: str | None = None) -> L_co:
        """Return the values of every window as a list.

        In event time they are in the order of their timestamps.

        state: all values of windows that are not over

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("collect")
        >>> pairs = (
        ...     flow.from_iterable(range(4)).window(ms.windows.count(2, 1)).collect()
        ... )
        >>> rows = pairs.collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [[0, 1], [1, 2], [2, 3]]
        """
        return cast("L_co", self._made("collect", None, name))

    def map_window(
        self, function: Callable[[Window, list[V_co]], Any], *, name: str | None = None
    ) -> S_co:
        """Call a function with every window and the list of its values.

        In event time they are in the order of their timestamps.

        state: all values of windows that are not over

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("map_window")
        >>> clicks = flow.from_iterable([1, 4, 30]).event_time(lambda click: click)
        >>> visits = clicks.window(ms.windows.session(10))
        >>> rows = visits.map_window(lambda w, v: (w.start, len(v))).collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [(1, 2), (30, 1)]
        """
        checked_function("map_window", function)
        return cast("S_co", self._made("map_window", None, name, function=function))

    def _made_in_time(self, verb: str, in_time: Aggregate, name: str | None) -> Any:
        given = self._given
        if given.is_timed and not given.waits_for_order:
            return self._made(verb, in_time, name, sees_times=True)
        return self._made(verb, builtin(verb), name)

    def _made(
        self, verb: str, aggregate: Aggregate | None, name: str | None, **details: Any
    ) -> Any:
        spec = Windowed(
            self._given.window,
            aggregate,
            lateness_ms=self._given.lateness_ms,
            shows_window=self._shows_window,
            **details,
        )
        return self._makes(_added(self._given, verb, spec, name))

    def __repr__(self) -> str:
        node = self._given.node
        return f"<WindowedStream from {node.verb!r} at {node.location}>"


def _added(given: WindowInput, verb: str, spec: Windowed, name: str | None) -> Node:
    """Append a window, and what it needs before it; its rows are pairs of key and result."""
    graph, node = given.graph, given.node
    name = name or graph.plan.free_name(verb)
    width = None if given.has_keys else 1
    if not given.has_keys:
        node = graph.add(verb, KeyBy(_nobody), (node.id,), name=f"{name}.all")
    if given.waits_for_order:
        times = {"takes_times": True, "makes_times": True}
        node = graph.add(
            verb,
            InTimeOrder(),
            (node.id,),
            name=f"{name}.order",
            takes_pairs=True,
            width=width,
            **times,
        )
    times = {"takes_times": True} if given.is_timed else {}
    if given.is_timed and not given.waits_for_order:
        times["makes_times"] = True
    return graph.add(
        verb, spec, (node.id,), name=name, takes_pairs=True, width=width, **times
    )


def values_of(graph: Graph, node: Node) -> Stream[Any]:
    """Return the results of a window that belong to nobody."""
    name = f"{node.name}.values"
    values = graph.add(node.verb, DropKey(), (node.id,), name=name, takes_pairs=True)
    return graph.stream(values)


def pairs_of(graph: Graph, node: Node) -> Stream[Any]:
    """Return the results of a window, each with its key, as rows."""
    if node.makes_times:  # if not, the pairs are rows as they are
        name = f"{node.name}.pairs"
        node = graph.add(node.verb, Unkey(), (node.id,), name=name, takes_pairs=True)
    return graph.stream(node)


def _nobody(_row: Any) -> None:
    """Return the key of all rows of a stream without keys."""
