"""Say which operator and which row a user function failed on.

The hot path keeps no position.  When something is raised, the traceback still holds
the frame of the loop over the batch, and that frame's ``rows_iterator`` knows how many
rows are left.  No Python function is run a second time.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError
from millstream.operators.rows.fuse import GENERATED, RunsFused
from millstream.plan.frame_windows import HIDDEN, TriggerFrame
from millstream.plan.nodes import (
    AggregateByKey,
    Combine,
    Filter,
    FilterMap,
    FlatMap,
    Flatten,
    Inspect,
    KeyBy,
    Map,
    Read,
    Regroup,
    Scan,
)
from millstream.plan.time import AssignTime, DropTime
from millstream.plan.timed import strip_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from millstream.operators.base import Operator, Rows
    from millstream.plan.logical import Node

__all__ = [
    "Blame",
    "blame",
    "blame_at",
    "blame_key",
    "is_one_to_one",
    "is_record_to_blame",
    "row_index",
]

_OWN_FILES = f"{Path(__file__).parents[1]}{os.sep}"
_STATE_FILES = f"{_OWN_FILES}state{os.sep}"
_POLARS_FILES = f"site-packages{os.sep}polars{os.sep}"
_PYTHON_FILES = f"{sysconfig.get_path('stdlib')}{os.sep}"
_ROW_TEXT_MAX = 200
_BY_KEY = (AggregateByKey, Combine, Scan)
_ONE_TO_ONE = (AssignTime, Combine, DropTime, Inspect, KeyBy, Map, Read, Regroup)
"""What looks at the keys of as many rows as it gets, or makes as many."""
_OF_ONE_VALUE = (Filter, FilterMap, FlatMap, Inspect, KeyBy, Map)
_OF_A_PAIR = (
    "unpack",
    "not subscriptable",
    "missing 1 required positional argument",
    "string index out of range",
    "tuple index out of range",
)
"""What Python says of a function that takes something else for a pair."""
_UNKEY = "behind key_by a function gets the value alone; unkey() gives it (key, value)"


@dataclass(frozen=True, slots=True)
class Blame:
    """Where a user function failed.

    Attributes
    ----------
    row_index
        Index of the row in its batch, or None where no single row is to blame.
    row_text
        The row as text, cut short.
    user_line
        ``file.py:7: code`` of the innermost line of the user's own, or "".
    advice
        What to do, where it looks as if a function had taken a value for a pair, or "".
    """

    node: Node
    row_index: int | None
    row_text: str
    user_line: str
    advice: str = ""


def blame(
    error: BaseException,
    operator: Operator,
    rows: Rows | None,
    stage: Sequence[Node] = (),
) -> Blame:
    """Find what `error`, raised inside ``operator.process(rows)``, is about.

    `stage` has the operators before it, of which one may have made its keys.
    """
    frames = _frames(error.__traceback__)
    place = _refused_key(frames)
    if place is not None:
        return _blame_key(operator.nodes, rows, place, stage)
    index = _row_index(frames, rows)
    if rows is None or index is None:
        node = _candidates(frames, operator)[-1]
        return Blame(node, None, "", _user_line(frames))
    node = _failing(_candidates(frames, operator), rows[index])
    text, line = _text(rows, index, operator), _user_line(frames)
    return Blame(node, index, text, line, _advice(error, node))


def _advice(error: BaseException, node: Node) -> str:
    """Return how a function gets the key as well, if it seems to have expected that."""
    is_by_value = node.takes_pairs and isinstance(node.spec, _OF_ONE_VALUE)
    if not is_by_value or not isinstance(error, TypeError | ValueError | IndexError):
        return ""
    return _UNKEY if any(words in str(error) for words in _OF_A_PAIR) else ""


def _text(rows: Any, index: int, operator: Operator) -> str:
    """Return the row as text; behind a key, what functions get and the key apart."""
    row, first = _as_known(rows, index, operator), operator.nodes[0]
    has_key = first.takes_pairs or isinstance(first.spec, _BY_KEY)
    if has_key and isinstance(rows, list):
        return f"{_shortened(row[1])} of key {_shortened(row[0])}"
    return _shortened(row)


def blame_key(error: BaseException, nodes: Sequence[Node], rows: Rows) -> Blame | None:
    """Find which of the rows that were to be sent has a key that cannot be one."""
    place = _refused_key(_frames(error.__traceback__))
    return None if place is None else _blame_key(nodes[-1:], rows, place, nodes)


def _blame_key(
    nodes: Sequence[Node],
    rows: Rows | None,
    place: tuple[int, int],
    stage: Sequence[Node] = (),
) -> Blame:
    """Say which row a key is of, if each row that came has one key."""
    index, count = place
    made = [node for node in stage or nodes if isinstance(node.spec, KeyBy)]
    node = made[-1] if made else nodes[-1]
    if rows is None or len(rows) != count or not is_one_to_one(nodes):
        return Blame(node, None, "", "")
    first = nodes[0]
    row = strip_timestamp(
        rows[index], is_timed=first.takes_times, has_key=first.takes_pairs
    )
    return Blame(node, index, _shortened(row), "")


def is_one_to_one(nodes: Sequence[Node]) -> bool:
    """Whether operators make one row of every row, or look at one key of each."""
    return all(isinstance(node.spec, _ONE_TO_ONE) for node in nodes)


def _refused_key(frames: list[TracebackType]) -> tuple[int, int] | None:
    """Return which of how many keys was refused, if that is what was raised."""
    for frame in frames:
        names = frame.tb_frame.f_locals
        iterator = names.get("keys_iterator")
        if iterator is not None:
            count = len(names["keys"])
            return count - length_hint(iterator) - 1, count
    return None


def _as_known(rows: Any, index: int, operator: Operator) -> Any:
    """Return a row as users know it, without its timestamp."""
    first = operator.nodes[0]
    if isinstance(rows, list):
        return strip_timestamp(
            rows[index], is_timed=first.takes_times, has_key=first.takes_pairs
        )
    row = rows.row(index, named=True)
    seen = first.spec.columns if isinstance(first.spec, TriggerFrame) else row
    return {name: row[name] for name in seen if name not in HIDDEN}


def blame_at(error: BaseException, node: Node) -> Blame:
    """Find what `error` is about, raised before any operator had a row."""
    return Blame(node, None, "", _user_line(_frames(error.__traceback__)))


def is_record_to_blame(error: BaseException) -> bool:
    """Whether an error may be due to a record, and not to memory, disk or the engine."""
    if isinstance(error, MillstreamError | MemoryError):
        return False
    frames = _frames(error.__traceback__)
    is_in_state = frames[-1].tb_frame.f_code.co_filename.startswith(_STATE_FILES)
    # Of keys, state says itself what it cannot hash.
    return not is_in_state or isinstance(error, TypeError)


def row_index(error: BaseException, rows: Rows) -> int | None:
    """Return which row of a batch an error is about, if that can be seen."""
    frames = _frames(error.__traceback__)
    place = _refused_key(frames)
    if place is not None and place[1] == len(rows):
        return place[0]
    return _row_index(frames, rows)


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _row_index(frames: list[TracebackType], rows: Rows | None) -> int | None:
    for frame in frames:
        iterator = frame.tb_frame.f_locals.get("rows_iterator")
        if iterator is not None and rows is not None:
            index = len(rows) - length_hint(iterator) - 1
            return index if 0 <= index < len(rows) else None
    return None


def _candidates(frames: list[TracebackType], operator: Operator) -> tuple[Node, ...]:
    """Name the operators that the innermost generated line calls."""
    if isinstance(operator, RunsFused):
        lines = [
            f.tb_lineno for f in frames if f.tb_frame.f_code.co_filename == GENERATED
        ]
        for line in reversed(lines):
            if line in operator.fused.nodes_of_line:
                return operator.fused.nodes_of_line[line]
    return operator.nodes[-1:]


def _failing(nodes: tuple[Node, ...], row: Any) -> Node:
    """Find the one that raised, by trying again; several are all written in C."""
    values = [row]
    for node in nodes[:-1]:
        try:
            values = _values_after(node, values)
        except Exception:  # noqa: BLE001 - that is what we look for
            return node
    return nodes[-1]


def _values_after(node: Node, values: list[Any]) -> list[Any]:
    spec = node.spec
    made = values
    if not isinstance(spec, Flatten):
        assert isinstance(spec, Map | Filter | FlatMap | KeyBy)
        made = [spec.function(value) for value in values]
    if isinstance(spec, Filter):
        return [value for value, keep in zip(values, made, strict=True) if keep]
    if isinstance(spec, Flatten | FlatMap):
        return [item for items in made for item in items]
    return made


def _user_line(frames: list[TracebackType]) -> str:
    for frame in reversed(frames):
        file = frame.tb_frame.f_code.co_filename
        if file != GENERATED and not _is_library(file):
            summary = traceback.FrameSummary(file, frame.tb_lineno, "")
            code = f": {summary.line}" if summary.line else ""
            return f"{os.path.basename(file)}:{frame.tb_lineno}{code}"  # noqa: PTH119
    return ""


def _is_library(file: str) -> bool:
    """Whether the file is Millstream's, Polars' or Python's own."""
    if _POLARS_FILES in file:
        return True
    if file.startswith(_PYTHON_FILES):
        return "site-packages" not in file
    return file.startswith((_OWN_FILES, "<frozen "))


def _shortened(row: Any) -> str:
    try:
        text = repr(row)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        text = f"<{type(row).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= _ROW_TEXT_MAX else text[:_ROW_TEXT_MAX] + "…"
