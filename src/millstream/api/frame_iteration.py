"""Iterations over data frames; the words are those of `millstream.api.iteration`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import polars as pl

from millstream.api.building import located, user_location
from millstream.api.graph import WrappedFrame, input_of
from millstream.api.rounds import (
    Rounds,
    checked_ends,
    checked_pair,
    checked_reduction,
    cycle_of,
    free_loop,
    made_by,
    optional_count,
    optional_function,
    refuse_made,
)
from millstream.columns.kernels.columns import KeyColumn
from millstream.errors import UsageError
from millstream.plan.grouping import Columns
from millstream.plan.iteration import Iteration, IterationKind, RoundState
from millstream.plan.nodes import Regroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.api.frame import Frame
    from millstream.api.graph import Graph
    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = ["FrameRoundVerbs"]

S = TypeVar("S")


class FrameRoundVerbs(WrappedFrame):
    """Iterations over the rows of a `Frame`."""

    def iterate(
        self,
        body: Callable[[Frame], Frame],
        *,
        reduce: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
        until: Callable[[pl.DataFrame], object] | None = None,
        max_rounds: int | None = None,
        show: Callable[[pl.DataFrame], float] | None = None,
        name: str | None = None,
    ) -> Frame:
        """Repeat operators: what `body` makes of the rows is what the next round gets.

        After a round, `reduce` makes a small frame of the rows of every batch, and of
        several such frames put together another one, until there is only one.

        moves data: what the body moves · state: all rows · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("iterate")
        >>> halved = (
        ...     flow.from_frame(pl.DataFrame({"x": [8.0, 20.0]}))
        ...     .iterate(
        ...         lambda rows: rows.with_columns(pl.col("x") / 2),
        ...         reduce=lambda rows: rows.select(pl.col("x").max()),
        ...         until=lambda largest: largest["x"][0] < 3,
        ...     )
        ...     .collect()
        ... )
        >>> _ = flow.run(on="local")
        >>> sorted(halved.result()["x"])
        [1.0, 2.5]
        """
        iteration = Iteration(
            IterationKind.ITERATE,
            makes_frames=True,
            rounds_max=checked_ends("iterate", until, max_rounds),
            reduce=checked_reduction("iterate", reduce, until, "rows"),
            until=until,
            show=optional_function("iterate", "show", show, "reduced"),
            schema=self.schema,
        )
        rounds = Rounds.begun(self._graph, "iterate", self._node.id, iteration, name)
        made = self._made("iterate", body, rounds)
        self._check_columns_again("iterate", made)
        tail = input_of("iterate", self._graph, made)
        return self._frame(rounds.closed(tail, makes_frames=True), self.schema)

    def cycle(
        self,
        state: S,
        body: Callable[[Frame, RoundState[S]], Frame],
        update: Callable[[S, pl.DataFrame], S],
        *,
        until: Callable[[S], object] | None = None,
        max_rounds: int | None = None,
        show: Callable[[S], float] | None = None,
        name: str | None = None,
    ) -> Stream[S]:
        """Repeat operators over the same rows, with a state that every round changes.

        `update` gets the state and all rows that the body made in the round, as one data
        frame, which may have none.  Make few rows of many in the body, with `map_batches`
        or `group_by`: the others need not move then.

        moves data: what the body makes, and the state · state: all rows · waits for the
        end: yes

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> def apart(middle):
        ...     return lambda rows: rows.select((pl.col("x") - middle.value).mean())
        >>> flow = ms.Flow("cycle")
        >>> middle = (
        ...     flow.from_frame(pl.DataFrame({"x": [1.0, 2.0, 6.0]}))
        ...     .cycle(
        ...         0.0,
        ...         lambda rows, middle: rows.map_batches(
        ...             apart(middle), schema={"x": pl.Float64}
        ...         ),
        ...         update=lambda middle, apart: middle + apart["x"].mean(),
        ...         max_rounds=5,
        ...     )
        ...     .collect()
        ... )
        >>> _ = flow.run(on="local")
        >>> middle.result()
        [3.0]
        """
        shown, iteration = cycle_of(
            state, update, until, max_rounds, show, schema=self.schema
        )
        rounds = Rounds.begun(self._graph, "cycle", self._node.id, iteration, name)
        made = self._made("cycle", body, rounds, state=shown)
        tail = input_of("cycle", self._graph, made)
        node = rounds.closed(tail, schema=made.schema)
        return self._graph.stream(node)

    def delta_iterate(
        self,
        on: str | Sequence[str],
        best: pl.Expr | Sequence[pl.Expr],
        body: Callable[[Frame], Frame],
        *,
        max_rounds: int | None = None,
        name: str | None = None,
    ) -> Frame:
        """Keep the best row of every key, and work on those that got better.

        The rows of the input are the first candidates.  Of all candidates of a key and
        the row it has, `best` makes the new row; the rows that changed are what the next
        round begins with, as long as there are any.  Then all rows are the result.

        moves data: by key · state: a row for every key · waits for the end: yes

        Parameters
        ----------
        on
            The key columns.
        best
            The least or largest value of a column, such as ``pl.col("cost").min()``, for
            every other column.

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> roads = pl.DataFrame({"from": ["a", "b"], "to": ["b", "c"], "km": [3, 4]})
        >>> flow = ms.Flow("shortest")
        >>> start = flow.from_frame(pl.DataFrame({"place": ["a"], "km": [0]}))
        >>> shortest = start.delta_iterate(
        ...     "place",
        ...     pl.col("km").min(),
        ...     lambda new: new.join(
        ...         roads.rename({"km": "more"}), left_on="place", right_on="from"
        ...     ).select(pl.col("to").alias("place"), pl.col("km") + pl.col("more")),
        ... ).collect()
        >>> _ = flow.run(on="local")
        >>> shortest.result().sort("place").rows()
        [('a', 0), ('b', 3), ('c', 7)]
        """
        keys = _checked_keys(on, self.schema)
        kept = _checked_best(keys, best, self.schema)
        iteration = Iteration(
            IterationKind.DELTA,
            makes_frames=True,
            rounds_max=optional_count("delta_iterate", max_rounds),
            keys=keys,
            best=kept,
            columns=tuple(self.schema),
            schema=self.schema,
        )
        graph = self._graph
        base = name or graph.plan.free_name("delta_iterate")
        source = _by_columns(graph, self._node.id, keys, f"{base}.keys")
        rounds = Rounds.begun(graph, "delta_iterate", source, iteration, base)
        made = self._made("delta_iterate", body, rounds)
        self._check_columns_again("delta_iterate", made, is_order_free=True)
        tail = input_of("delta_iterate", graph, made)
        candidates = _by_columns(graph, tail, keys, f"{base}.candidates")
        return self._frame(rounds.closed(candidates, makes_frames=True), self.schema)

    def loop(
        self,
        body: Callable[[Frame], tuple[Frame, Frame]],
        *,
        max_hops: int | None = None,
        name: str | None = None,
    ) -> Frame:
        """Let rows go round operators, each batch at its own pace.

        `body` gets a frame of the input and of what comes round, and returns two: what
        goes round again, with the columns of the input, and what leaves.  There are no
        rounds; a bounded loop ends when nothing is left in it, any loop when
        nobody needs more of what leaves.

        moves data: what the body moves · state: what the body keeps · waits for the end: no

        Parameters
        ----------
        max_hops
            Most times that a row, and what was made of it, may go round; the job fails
            when there is one more.  Batches are kept apart by it, which costs some speed.

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> def halve(rows):
        ...     halved = rows.with_columns(pl.col("x") // 2)
        ...     return halved.filter(pl.col("x") > 10), halved.filter(pl.col("x") <= 10)
        >>> flow = ms.Flow("loop")
        >>> numbers = flow.from_frame(pl.DataFrame({"x": [100, 7, 64]}))
        >>> small = numbers.loop(halve).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(small.result()["x"])
        [3, 6, 8]
        """
        graph = self._graph
        iteration = free_loop(max_hops, self.schema)
        rounds = Rounds.begun(graph, "loop", self._node.id, iteration, name)
        made = made_by("loop", body, rows=self._frame(rounds.body_input, self.schema))
        again, out = checked_pair(made, FrameRoundVerbs, "Frame")
        self._check_columns_again("loop", again)
        ends = input_of("loop", graph, again), input_of("loop", graph, out)
        return self._frame(rounds.closed_free(*ends), out.schema)

    def _check_columns_again(
        self, verb: str, made: Frame, *, is_order_free: bool = False
    ) -> None:
        """Refuse what cannot go round again, since it has other columns."""
        is_same = dict(made.schema) == dict(self.schema)
        if not is_same or not (is_order_free or made.schema == self.schema):
            msg = (
                f"the body of `{verb}` at {user_location()} returns columns "
                f"{dict(made.schema)}, but what goes round again needs those that it "
                f"began with, {dict(self.schema)}; select or cast them in the body"
            )
            raise UsageError(msg)

    def _made(
        self, verb: str, body: Callable[..., Any], rounds: Rounds, **given: Any
    ) -> Frame:
        rows = self._frame(rounds.body_input, self.schema)
        made = made_by(verb, body, rows=rows, **given)
        if not isinstance(made, FrameRoundVerbs):
            refuse_made(verb, "Frame", made)
        return cast("Frame", made)

    def _frame(self, node: Node, schema: pl.Schema) -> Frame:
        return self._graph.frame(node, schema)


def _by_columns(graph: Graph, node: int, keys: tuple[str, ...], name: str) -> int:
    """Return a node whose rows go to the task of their key."""
    moved = graph.add(
        "delta_iterate",
        Regroup(),
        (node,),
        name=name,
        regroups=Columns(keys),
        makes_frames=True,
    )
    return moved.id


def _checked_keys(on: object, schema: pl.Schema) -> tuple[str, ...]:
    """Return the key columns; refuse those that nobody knows, or that are no keys."""
    where = f"`delta_iterate` at {user_location()}"
    keys = tuple(on) if isinstance(on, list | tuple) else (on,)
    if not keys or not all(isinstance(key, str) for key in keys):
        msg = f"{where} takes the names of key columns, got {on!r}"
        raise UsageError(msg)
    for key in keys:
        if key not in schema:
            msg = f"{where} has no column {key!r}; there are {', '.join(schema)}"
            raise UsageError(msg)
        with located("delta_iterate"):
            KeyColumn.of(key, schema[key])
    return keys


def _checked_best(
    keys: tuple[str, ...], best: object, schema: pl.Schema
) -> tuple[pl.Expr, ...]:
    """Return what is kept; refuse what changes when it is made again."""
    where = f"`delta_iterate` at {user_location()}"
    kept = best if isinstance(best, list | tuple) else (best,)
    rest = [name for name in schema if name not in keys]
    extremes = {name: (pl.col(name).min(), pl.col(name).max()) for name in rest}
    for expr in kept:
        known = extremes.pop(_output_name(expr), ())
        if not any(expr.meta.eq(extreme) for extreme in known):
            msg = (
                f"{where} keeps {expr}; only the least or largest value of a column that "
                "is no key can be kept, such as pl.col('cost').min(), because candidates "
                "may come again"
            )
            raise UsageError(msg)
    if extremes:
        names = ", ".join(extremes)
        msg = f"{where} does not say which {names} to keep; add it to best= or drop it"
        raise UsageError(msg)
    return tuple(kept)


def _output_name(expr: object) -> str:
    """Return the column that an expression makes, or "" if that is not one."""
    if not isinstance(expr, pl.Expr):
        return ""
    try:
        return expr.meta.output_name()
    except pl.exceptions.PolarsError:
        return ""
