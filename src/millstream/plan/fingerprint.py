"""What an operator keeps, in words that a later version of the flow can be compared with.

The state of an operator is found by its name.  A *fingerprint* says what stands under the
name: what the operator does, what is kept in which types, and under which window, kind of
join or time to live.  It is stored with every snapshot; `millstream.launch.fitting` compares
it before anything is restored.

Every kind of operator is in one of two lists: those that keep something, with what makes
their fingerprint, and those that keep nothing.  A kind that is in neither cannot run.

Functions cannot be compared, so none is in a fingerprint.  Nothing here imports Polars;
types are written as they call themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from millstream.plan import frame_windows, frames, joins, nodes
from millstream.plan.frame_joins import JoinFrameStreams
from millstream.plan.iteration import (
    BodyInput,
    Decide,
    LoopHead,
    LoopResult,
    place_state,
)
from millstream.plan.projection import NarrowQuery
from millstream.plan.time import AssignTime, DropTime, InTimeOrder, LateRows
from millstream.plan.windows import CombineWindows, Everything, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.plan.aggregate import Aggregate
    from millstream.plan.nodes import Node

__all__ = [
    "FOR_EVER",
    "KEEPING",
    "KEEPING_NOTHING",
    "Field",
    "Fingerprint",
    "Rule",
    "fingerprints",
]

FOR_EVER = "for ever"
_PLAIN = (int, float, str, bytes, bool, type(None))
_NUMBER = re.compile(r"-\d+(?=$|\.)")


class Rule(Enum):
    """Which change of a field leaves the state right."""

    SAME = auto()
    """None."""
    ANY_ORDER = auto()
    """Another order."""
    FEWER = auto()
    """Another order, and some less: what is not asked for any more is left out."""
    MORE = auto()
    """Another order, and some more: they begin empty."""
    LONGER = auto()
    """A longer time."""
    FREE = auto()
    """Any: it holds from now on."""


@dataclass(frozen=True, slots=True)
class Field:
    """Something about the state of an operator."""

    name: str
    values: tuple[str, ...]
    rule: Rule = Rule.SAME


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What an operator keeps.

    Attributes
    ----------
    does
        What it is, in a few words.
    family
        What its default name is made of; empty if the user named it.
    reads
        The nearest operators above it that keep something, sources among them.
    """

    does: str
    fields: tuple[Field, ...]
    family: str = ""
    reads: tuple[str, ...] = ()

    @property
    def is_for_driver(self) -> bool:
        """Whether what it keeps are the rows that came to the driver."""
        return self.does in _FOR_DRIVER

    def plain(self) -> dict[str, tuple[str, ...]]:
        """Return it as a manifest stores it."""
        own = {field.name: field.values for field in self.fields}
        return {
            "does": (self.does,),
            "family": (self.family,),
            "reads": self.reads,
        } | own


def fingerprints(plan: Sequence[Node]) -> dict[str, Fingerprint]:
    """Return the fingerprints of all operators that keep something, by their names."""
    by_id = {node.id: node for node in plan}
    found = {}
    for node in plan:
        made = _own(node, by_id)
        if made is None:
            continue
        does, fields = made
        family = _NUMBER.sub("", node.name) if node.has_default_name else ""
        reads = tuple(sorted(_nearest(node, by_id)))
        found[node.name] = Fingerprint(does, fields, family, reads)
        if isinstance(node.spec, LoopHead):
            place = place_state(node.name, has_rounds=node.spec.iteration.has_rounds)
            found[place] = found[node.name]
    return found


def _own(node: Node, by_id: Mapping[int, Node]) -> tuple[str, tuple[Field, ...]] | None:
    """Return what a node does and what it keeps; None if it keeps nothing."""
    kind, spec = type(node.spec), node.spec
    if kind in KEEPING:
        does, describe = KEEPING[kind]
        common = [_field("rows", "keyed")] if node.takes_pairs else []
        common += [_field("time", "event time")] if node.takes_times else []
        arriving = _arriving(node, by_id) if kind in _NARROWED else None
        if arriving is not None:
            common.append(Field("columns that arrive", arriving, Rule.ANY_ORDER))
        return does, (*describe(spec), *common)
    assert kind in KEEPING_NOTHING, f"{kind.__name__} has no fingerprint"
    function = getattr(spec, "function", None)
    if getattr(type(function), "is_remembering", False) is True:
        return node.verb, (_field("function", type(function).__qualname__),)
    return None


def _nearest(node: Node, by_id: Mapping[int, Node]) -> set[str]:
    """Return the names of the nearest operators above that keep something."""
    found: set[str] = set()
    ahead, seen = list(node.inputs), set()
    while ahead:
        number = ahead.pop()
        if number in seen:
            continue
        seen.add(number)
        above = by_id[number]
        is_own = above.name.endswith(nodes.LOCAL)
        if isinstance(above.spec, nodes.Read) or (
            not is_own and _own(above, by_id) is not None
        ):
            found.add(above.name)
        else:
            ahead += above.inputs
    return found


def _arriving(node: Node, by_id: Mapping[int, Node]) -> tuple[str, ...] | None:
    """Return the columns of rows where the planner has left some out, None for all."""
    above = by_id[node.inputs[0]]
    while True:
        spec: Any = above.spec
        if isinstance(spec, nodes.Read):
            source: Any = spec.source
            return None if spec.column_count is None else tuple(source.schema)
        query = getattr(spec, "function", None)
        if isinstance(query, NarrowQuery) and query.columns is not None:
            return query.columns
        if type(spec) not in _PASSING:
            return None
        above = by_id[above.inputs[0]]


# Pieces


def _field(name: str, value: object, rule: Rule = Rule.SAME) -> Field:
    return Field(name, (str(value),), rule)


def _span(name: str, milliseconds: int | None, rule: Rule = Rule.SAME) -> Field:
    value = FOR_EVER if milliseconds is None else f"{milliseconds} ms"
    return Field(name, (value,), rule)


def _schema(name: str, schema: Any, rule: Rule = Rule.SAME) -> Field:
    known = {} if schema is None else schema
    columns = tuple(f"{column}: {kind}" for column, kind in known.items())
    return Field(name, columns, rule)


def _value(name: str, value: object) -> Field:
    """Compare plain values by what they are, and others by their type."""
    shown = repr(value) if type(value) in _PLAIN else f"a {type(value).__qualname__}"
    return _field(name, shown)


def _aggregate(aggregate: Aggregate | None) -> Iterable[Field]:
    if aggregate is None:
        return (_field("aggregate", "none, all values"),)
    known = aggregate.kind
    if known is not None:
        return (_field("aggregate", known),)
    return (
        _field("aggregate", f"{aggregate.name} with functions"),
        _value("begins with", aggregate.empty),
    )


def _aggregation(aggregation: Any, rule: Rule = Rule.ANY_ORDER) -> Iterable[Field]:
    yield Field("keys", tuple(aggregation.key_kinds))
    yield Field("keeps", tuple(aggregation.kept), rule)


def _window(window: Any) -> Field:
    if isinstance(window, Everything):
        return _field("window", f"{window}, {window.time or 'any'} time")
    offset = getattr(window, "offset_ms", 0)
    return _field("window", f"{window}" + (f" from {offset} ms" if offset else ""))


# Kinds of operators


def _process(spec: nodes.Process) -> Iterable[Field]:
    yield _field("in time order", spec.in_time_order)
    yield from (
        Field(name, values, Rule.MORE if name == "state" else Rule.LONGER)
        if name == "state" or name.startswith("ttl of ")
        else Field(name, values)
        for name, values in spec.function.declared_state()
    )


def _sort(spec: nodes.SortBy) -> Iterable[Field]:
    yield _field("order", "descending" if spec.is_descending else "ascending")
    yield _field("first rows", "all" if spec.limit is None else spec.limit)


def _sort_frame(spec: frames.SortFrame) -> Iterable[Field]:
    yield Field("by", spec.by)
    yield Field("descending", tuple(map(str, spec.descending)))
    yield Field("nulls last", tuple(map(str, spec.nulls_last)))
    yield _field("first rows", "all" if spec.limit is None else spec.limit)
    # Often it has no rows yet; if it has some, they are looked at when they are restored.
    yield _schema("columns", spec.schema, Rule.FREE)


def _promise(spec: AssignTime | frame_windows.AssignFrameTime) -> Iterable[Field]:
    is_own = spec.watermark is not None
    yield _field("promise", "the user's" if is_own else "by disorder")
    yield _span("disorder", spec.disorder_ms, Rule.FREE)
    yield _span("idle after", spec.idle_after_ms, Rule.FREE)
    yield _span("ahead at most", spec.max_ahead_ms, Rule.FREE)
    yield _field("splits in order", spec.splits_in_order, Rule.FREE)


def _windowed(spec: Windowed) -> Iterable[Field]:
    yield _window(spec.window)
    yield from _aggregate(spec.aggregate)
    yield _span("lateness", spec.lateness_ms)
    yield _field("in order", spec.is_ordered)
    yield _field("with times", spec.sees_times)


def _join(spec: joins.Join) -> Iterable[Field]:
    yield _field("how", spec.how)
    yield _span("ttl", spec.ttl_ms, Rule.LONGER)


def _join_window(spec: joins.JoinWindow) -> Iterable[Field]:
    yield _field("how", spec.how)
    clock = "event time" if spec.is_event_time else "the clock"
    bounds = f"{spec.size} ms every {spec.slide} ms from {spec.offset} ms"
    yield _field("windows", f"{bounds} of {clock}")


def _join_interval(spec: joins.JoinInterval) -> Iterable[Field]:
    yield _field("how", spec.how)
    yield _field("interval", f"{spec.lower} to {spec.upper} ms")


def _join_asof(spec: joins.JoinAsof) -> Iterable[Field]:
    yield _field("how", spec.how)
    yield _field("direction", spec.direction)
    yield _span("tolerance", spec.tolerance)
    yield _field("whole right side", spec.is_whole)
    yield _field("table", spec.is_table)


def _join_table(spec: joins.JoinTable) -> Iterable[Field]:
    yield _field("how", spec.how)
    yield _field("waits", spec.waits)
    yield _field("whole right side", spec.is_whole)


def _join_frames(spec: frames.JoinFrames) -> Iterable[Field]:
    yield _field("how", spec.how)
    yield Field("left on", spec.left_on)
    yield Field("right on", spec.right_on)
    yield _field("nulls equal", spec.nulls_equal)
    yield _schema("left columns", spec.left_schema)
    yield _schema("right columns", spec.right_schema)


def _join_frame_streams(spec: JoinFrameStreams) -> Iterable[Field]:
    yield from KEEPING[type(spec.by)][1](spec.by)
    columns = spec.columns
    yield Field("left on", columns.left_on)
    yield Field("right on", columns.right_on)
    yield _field("nulls equal", columns.nulls_equal)
    yield _schema("left columns", spec.left_schema)
    yield _schema("right columns", columns.right_schema)


def _time_windows(
    spec: frame_windows.TimeWindowFrame | frame_windows.SessionFrame,
) -> Iterable[Field]:
    yield _window(spec.window)
    yield from _aggregation(spec.aggregation)
    yield _span("lateness", spec.lateness_ms)
    yield _field("by the clock", spec.is_by_clock)


def _count_windows(spec: frame_windows.CountFrame) -> Iterable[Field]:
    yield _window(spec.window)
    yield from _aggregation(spec.aggregation)


def _trigger(spec: frame_windows.TriggerFrame) -> Iterable[Field]:
    yield _window(spec.window)
    yield from _aggregation(spec.aggregation)
    yield Field("columns", spec.columns)


def _order_frame(spec: frame_windows.OrderFrame) -> Iterable[Field]:
    yield Field("keys", spec.keys)
    yield _schema("columns", spec.schema)


def _unique_frame(spec: frames.UniqueFrame) -> Iterable[Field]:
    yield _schema("keys", spec.schema)


def _loop(spec: LoopHead | Decide) -> Iterable[Field]:
    iteration = spec.iteration
    yield _field("kind", iteration.kind)
    yield _field("batches", "frames" if iteration.makes_frames else "rows")
    yield _schema("columns", iteration.schema)
    yield Field("keys", iteration.keys)
    yield Field("best", tuple(map(str, iteration.best)))
    yield _value("begins with", iteration.initial)
    rounds = "any" if iteration.rounds_max is None else iteration.rounds_max
    yield _field("rounds at most", rounds, Rule.FREE)
    hops = "any" if iteration.hops_max is None else iteration.hops_max
    yield _field("hops at most", hops, Rule.FREE)


def _nothing_more(spec: object) -> Iterable[Field]:  # noqa: ARG001 - see its name
    return ()


def _sink(spec: nodes.Write) -> Iterable[Field]:
    yield _field("sink", type(spec.sink).__qualname__)


KEEPING: dict[type, tuple[str, Callable[[Any], Iterable[Field]]]] = {
    nodes.AggregateByKey: ("aggregate by key", lambda s: _aggregate(s.aggregate)),
    nodes.AggregateAll: ("aggregate of all rows", lambda s: _aggregate(s.aggregate)),
    nodes.CombineAll: ("aggregate of a task's rows", lambda s: _aggregate(s.aggregate)),
    nodes.Scan: ("running aggregate by key", lambda s: _aggregate(s.aggregate)),
    nodes.Process: ("stateful function", _process),
    nodes.Unique: ("unique", _nothing_more),
    nodes.Limit: ("limit", lambda s: (_field("rows at most", s.rows),)),
    nodes.SortBy: ("sort", _sort),
    nodes.Zip: ("zip", _nothing_more),
    nodes.LetterBudget: (
        "budget of dead letters",
        lambda s: (_field("letters at most", s.letters_max, Rule.FREE),),
    ),
    nodes.Collect: ("collect", _nothing_more),
    nodes.Result: ("result", _nothing_more),
    nodes.Write: ("write", _sink),
    AssignTime: ("event time", _promise),
    InTimeOrder: ("in time order", _nothing_more),
    Windowed: ("windows", _windowed),
    joins.Join: ("join", _join),
    joins.JoinWindow: ("join by windows", _join_window),
    joins.JoinInterval: ("join by interval", _join_interval),
    joins.JoinAsof: ("join as of a time", _join_asof),
    joins.JoinTable: ("join with a table", _join_table),
    LoopHead: ("loop", _loop),
    Decide: ("end of a loop", _loop),
    frames.AggregateFrame: (
        "aggregate of a frame by key",
        lambda s: _aggregation(s.aggregation, Rule.FEWER),
    ),
    frames.SortFrame: ("sort of a frame", _sort_frame),
    frames.UniqueFrame: ("unique rows of a frame", _unique_frame),
    frames.JoinFrames: ("join of a frame with a whole one", _join_frames),
    frames.CollectFrames: (
        "collect of frames",
        lambda s: (_schema("columns", s.schema, Rule.ANY_ORDER),),
    ),
    JoinFrameStreams: ("join of frames by key", _join_frame_streams),
    frame_windows.AssignFrameTime: ("event time of a frame", _promise),
    frame_windows.TimeWindowFrame: ("windows of a frame", _time_windows),
    frame_windows.SessionFrame: ("sessions of a frame", _time_windows),
    frame_windows.CountFrame: ("count windows of a frame", _count_windows),
    frame_windows.TriggerFrame: ("windows of a frame by trigger", _trigger),
    frame_windows.OrderFrame: ("order of a frame by time", _order_frame),
}
"""Operators that keep something from batch to batch that a cut does not find sent on."""

KEEPING_NOTHING: frozenset[type] = frozenset(
    {
        nodes.Read,  # offsets, which belong to what the source was asked to read
        nodes.Map, nodes.Filter, nodes.FlatMap, nodes.FilterMap, nodes.Flatten,
        nodes.Inspect, nodes.KeyBy, nodes.DropKey, nodes.Unkey, nodes.DeadLetters,
        nodes.MapBatches, nodes.Regroup, nodes.Merge, nodes.Combine, nodes.ForEach,
        DropTime, LateRows, CombineWindows, BodyInput, LoopResult,
        frames.Transform, frames.MapFrames, frames.ToRows, frames.ToFrame,
        frames.CombineFrame, frames.JoinStatic, frames.Tokens,
        frame_windows.CombinePanes, frame_windows.MapWindow,
    }
)  # fmt: skip
"""Operators that keep nothing, unless their function is the user's `OperatorState`."""

_FOR_DRIVER = frozenset(
    KEEPING[kind][0] for kind in (nodes.Collect, nodes.Result, frames.CollectFrames)
)

_NARROWED = frozenset({frames.SortFrame, frame_windows.OrderFrame})
"""Keep rows of which the planner may have left columns out."""

_PASSING = frozenset({nodes.Regroup, nodes.Limit, frames.SortFrame})
"""Rows leave them with the columns with which they came."""
