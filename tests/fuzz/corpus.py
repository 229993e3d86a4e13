"""Scenarios that once went wrong, the smallest of their kind.

Take up what a search finds when the cause is mended: `hunting` prints it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fuzz.programs import Program, Step
from tests.fuzz.scenarios import Leg, Scenario

__all__ = ["CORPUS"]

CORPUS: dict[str, Scenario] = {}

ROWS = Step("s0", "iterable", (), (80, "few", 0))
UNEVEN = Step("s0", "parallel", (), ((2, 40), "few", 0))
FRAME = Step("s0", "frame", (), (80, "few", 0))


def _known(name: str, *legs: Leg) -> None:
    CORPUS[name] = Scenario(legs)


def _changed(
    name: str, source: Step, before: Step, *arguments: Any, is_same: bool = False
) -> None:
    """Take up a step that has other arguments when the job goes on."""
    sink = Step("o0", "collect_frame" if source is FRAME else "collect", (before.name,))
    first = Leg(Program((source, before, sink)), 1, stop=2)
    after = replace(before, arguments=arguments)
    then = Leg(first.program.with_step(after), 1, may_refuse=not is_same)
    _known(name, first, then)


_SHARED = Program(
    (
        ROWS,
        Step("o0", "write_text", ("s0",), ("a",)),
        Step("o1", "write_text", ("s0",), ("a",)),
    )
)
_known("two sinks in one directory", Leg(_SHARED, 1))

_TEXT = Program((ROWS, Step("o0", "write_text", ("s0",), ("a",))))
_known("two jobs in one directory", Leg(_TEXT, 1, beside="same output"))

for _body in ("next", "shuffled", "summed"):
    _rounds = Program(
        (
            UNEVEN,
            Step("n0", "iterate", ("s0",), (_body, 3, None)),
            Step("o0", "collect", ("n0",)),
        )
    )
    _known(
        f"iterate with fewer workers, {_body}", Leg(_rounds, 2, stop=1), Leg(_rounds, 1)
    )

_LIMIT = Program(
    (
        ROWS,
        Step("o0", "limited", ("s0",), (7,)),
        Step("o1", "count", ("s0",)),
    )
)
_MAPPED = Program(
    (
        ROWS,
        Step("o0", "limited", ("s0",), (7,)),
        Step("i0", "same", ("s0",), ("map",)),
        Step("o1", "count", ("i0",)),
    )
)
_known("limit with more workers", Leg(_LIMIT, 2, stop=2), Leg(_LIMIT, 3))
_known("limit beside one more map", Leg(_LIMIT, 2, stop=2), Leg(_MAPPED, 2))

_CYCLE = Program(
    (ROWS, Step("n0", "cycle", ("s0",), (3,)), Step("o0", "collect", ("n0",)))
)
_known("cycle that is complete", Leg(_CYCLE, 2), Leg(_CYCLE, 1))

_AGG = Step("n0", "agg", ("s0",), (("total", "n"), "Int64"))
_changed("agg in another order", FRAME, _AGG, ("n", "total"), "Int64", is_same=True)
_changed("agg of another type", FRAME, _AGG, ("total", "n"), "Float64")
_SUM = Step("n0", "grouped", ("s0",), ("sum",))
_changed("sum to count", ROWS, _SUM, "count")
_LATE = Step("n0", "windowed", ("s0",), (("tumbling", 30), "sum", 0))
_WINDOW = Step("n0", "windowed", ("s0",), (("tumbling", 100), "sum", 60))
_changed("tumbling of another size", ROWS, _WINDOW, ("tumbling", 30), "sum", 60)
_JOIN = Step("n0", "join", ("s0", "s0"), ("inner",))
_changed("join of another kind", ROWS, _JOIN, "semi")

_TWO = Program(
    (
        ROWS,
        Step("s1", "iterable", (), (80, "few", 1)),
        Step("o0", "count", ("s0",)),
        Step("o1", "count", ("s1",)),
    )
)
_ONE = _TWO.without({"s1", "o1"})
_known(
    "state that was dropped is asked for no more",
    Leg(_TWO, 1, stop=1),
    Leg(_ONE, 1, stop=1, drops=True),
    Leg(_ONE, 1),
)

_ENDED = Program(
    (
        Step("s0", "iterable", (), (2, "few", 0)),
        Step("s1", "iterable", (), (80, "few", 1)),
        Step("o0", "count", ("s0",)),
        Step("o1", "count", ("s1",)),
    )
)
_REST = _ENDED.without({"s1", "o1"})
_known(
    "state that was dropped where nothing is left to do is asked for no more",
    Leg(_ENDED, 1, stop=3),
    Leg(_REST, 1, drops=True),
    Leg(_REST, 2),
)

_UNORDERED = Step("s0", "iterable", (), (80, "few", 1))
_TIMED = Program((_UNORDERED, _LATE, Step("o0", "collect", ("n0",))))
_READ_TWICE = _TIMED.with_step(Step("o1", "count", ("s0",)))
_known(
    "late rows of a source that is read twice",
    Leg(_READ_TWICE, 3, stop=2),
    Leg(_READ_TWICE, 2),
)
_known(
    "late rows of a source that is read once more from now on",
    Leg(_TIMED, 2, stop=2),
    Leg(_TIMED.with_step(Step("b1", "count", ("s0",))), 3, free=frozenset({"b1"})),
)

_ADDED = Program(
    (
        *_ONE.steps,
        Step("s2", "parallel", (), ((2, 40), "few", 0)),
        Step("o2", "sum", ("s2",)),
    )
)
_known(
    "source that was added and goes on with more workers",
    Leg(_ONE, 2, stop=1),
    Leg(_ADDED, 2, stop=1),
    Leg(_ADDED, 3),
    Leg(_ADDED, 2),
)

_SIDE = Program(
    (
        ROWS,
        Step("n0", "cycle", ("s0",), (1,)),
        Step("n1", "iterate_join", ("s0", "n0"), (3,)),
        Step("o0", "collect", ("n1",)),
    )
)
_known("a loop joins with what another loop made", Leg(_SIDE, 2, stop=2), Leg(_SIDE, 1))

_RESUMED = Program(
    (
        Step("s0", "iterable", (), (0, "few", 0)),
        Step("s1", "iterable", (), (40, "few", 0)),
        Step("n1", "join", ("s0", "s1"), ("inner",)),
        Step("n2", "iterate_join", ("s0", "n1"), (1,)),
        Step("o0", "collect", ("n2",)),
        Step("o1", "collect", ("s1",)),
    )
)
_known(
    "an epoch opens before input and side of a loop have ended again",
    Leg(_RESUMED, 1, stop=3),
    Leg(_RESUMED, 1, stop=1),
    Leg(_RESUMED, 2),
)

_SLIDING = Program(
    (
        Step("s2", "iterable", (), (12, "few", 0)),
        Step("n1", "windowed", ("s2",), (("sliding", 40, 20), "count", 0)),
        Step("o2", "collect", ("n1",)),
    )
)
_known(
    "a task that is new with more workers knows which windows were told",
    Leg(_SLIDING, 1, stop=1, batch_rows=16),
    Leg(_SLIDING, 2, batch_rows=2),
)

_HIGH = ("different", "high")
_OVER = Program(
    (
        Step("s0", "frame", (), (1, "few", 0)),
        Step("n0", "agg", ("s0",), ((*_HIGH, "low"), "Int64")),
        Step("n1", "iterate_frame", ("s0",), ("filtered", 1)),
        Step("o0", "collect_frame", ("n0",)),
        Step("o1", "collect_frame", ("n1",)),
    )
)
_known(
    "an aggregate that has ended has another result",
    Leg(_OVER, 1, stop=1),
    Leg(
        _OVER.with_step(Step("n0", "agg", ("s0",), (_HIGH, "Int64"))),
        1,
        may_refuse=True,
    ),
)
