"""fuse: one generated function does what its operators do one by one.

Method: Hypothesis draws a chain of row operators and some rows.  The oracle applies the
operators one after the other to the whole list.  For failures, one function of the
chain is replaced by one that raises on a certain value; the oracle finds the first
operator and row that see it by running row after row.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.making import nodes

from millstream.config import Config
from millstream.operators.failure import blame
from millstream.operators.rows.aggregation import CountCombineOperator
from millstream.operators.rows.fuse import fuse
from millstream.operators.rows.rowwise import FusedRowOperator
from millstream.plan import nodes as specs
from millstream.plan.aggregate import builtin
from millstream.plan.time import DropTime
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.logical import Node
    from millstream.plan.spec import Spec


def double(i: int) -> int:
    return 2 * i


def is_odd(i: int) -> bool:
    return i % 2 == 1


def twice(i: int) -> list[int]:
    return [i, i + 1]


def count_up(i: int) -> Any:
    yield from range(i % 3)


def small_half(i: int) -> int | None:
    return i // 2 if i < 50 else None


class Plus:
    """A callable that is not a function."""

    def __call__(self, i: int) -> int:
        return i + 1


RANGES = specs.FlatMap(range)
"""Once in a chain at most: ranges of ranges of ranges have millions of rows."""

INT_SPECS: list[Callable[[], Spec]] = [
    lambda: specs.Map(double),
    lambda: specs.Map(abs),
    lambda: specs.Map(int),
    lambda: specs.Map(Plus()),
    lambda: specs.Map(lambda i: i - 3),
    lambda: specs.Filter(is_odd),
    lambda: specs.Filter(abs),
    lambda: specs.Filter((7).__ne__),
    lambda: specs.FlatMap(twice),
    lambda: specs.FlatMap(count_up),
    lambda: RANGES,
    lambda: specs.FilterMap(small_half),
    lambda: specs.FilterMap({1: 10, 2: 20, 3: 30}.get),
    lambda: specs.Inspect(is_odd),
    lambda: specs.Inspect(abs),
    lambda: specs.KeyBy(is_odd),
    lambda: specs.KeyBy(abs),
]


@st.composite
def chains(draw: st.DrawFn, *, keyed: bool) -> list[Spec]:
    """Draw operators that fit each other; values stay numbers, keys come and go."""
    chain: list[Spec] = []
    has_key = keyed
    for _ in range(draw(st.integers(0, 6))):
        if has_key and draw(st.booleans()):
            has_key = False
            if draw(st.booleans()):
                chain.append(specs.DropKey())
            else:
                chain += [specs.Unkey(), specs.Map(lambda pair: pair[0] + pair[1])]
        elif draw(st.integers(0, 5)) == 0:
            chain += [specs.Map(twice), specs.Flatten()]
        else:
            spec = draw(st.sampled_from(INT_SPECS))()
            is_too_much = spec is RANGES and RANGES in chain
            chain.append(specs.FlatMap(count_up) if is_too_much else spec)
            has_key |= isinstance(chain[-1], specs.KeyBy)
    return chain


def applied(spec: Spec, key: Any, value: Any) -> list[Any]:  # noqa: PLR0911
    """Return what one operator makes of one row, as (key, value) pairs."""
    match spec:
        case specs.Map(function):
            return [(key, function(value))]
        case specs.Filter(function):
            return [(key, value)] if function(value) else []
        case specs.FlatMap(function):
            return [(key, item) for item in function(value)]
        case specs.FilterMap(function):
            made = function(value)
            return [] if made is None else [(key, made)]
        case specs.Flatten():
            return [(key, item) for item in value]
        case specs.Inspect(function):
            function(value)
            return [(key, value)]
        case specs.KeyBy(function):
            return [(function(value), value)]
        case specs.DropKey():
            return [(None, value)]
        case specs.Unkey():
            return [(None, (key, value))]
        case DropTime():
            return [(key, value)]
    pytest.fail(f"{spec} does not fuse")


def expected(chain: list[Spec], rows: list[Any], *, keyed: bool) -> list[Any]:
    """Apply the operators one by one."""
    has_key = keyed
    pairs = rows if keyed else [(None, row) for row in rows]
    for spec in chain:
        pairs = [p for key, value in pairs for p in applied(spec, key, value)]
        if isinstance(spec, specs.KeyBy):
            has_key = True
        elif isinstance(spec, specs.DropKey | specs.Unkey):
            has_key = False
    return pairs if has_key else [value for _, value in pairs]


NUMBERS = st.lists(st.integers(0, 100), max_size=12)


@given(chains(keyed=False), NUMBERS)
def test_chain_of_plain_rows_equals_its_operators_one_by_one(
    chain: list[Spec], rows: list[int]
) -> None:
    """Fusing is an optimization and nothing else."""
    fused = fuse(nodes(chain))

    assert fused.function(rows) == expected(chain, rows, keyed=False), fused.source


@given(chains(keyed=True), NUMBERS)
def test_chain_of_keyed_rows_equals_its_operators_one_by_one(
    chain: list[Spec], rows: list[int]
) -> None:
    """Functions see the value, and the key stays with it."""
    pairs = [(row % 3, row) for row in rows]
    fused = fuse(nodes(chain, takes_pairs=True))

    assert fused.function(pairs) == expected(chain, pairs, keyed=True), fused.source


@pytest.mark.parametrize("keyed", [False, True])
@given(st.data(), NUMBERS)
def test_timestamps_stay_with_the_rows_until_they_are_dropped(
    keyed: bool,  # noqa: FBT001 - a parameter of the test
    data: st.DataObject,
    rows: list[int],
) -> None:
    """Functions see the value alone; what is made of a row has the time of the row."""
    chain = data.draw(chains(keyed=keyed))
    times = [2 * row for row in rows]
    made = [expected(chain, _one(row, keyed=keyed), keyed=keyed) for row in rows]
    has_key = keyed
    for spec in chain:
        has_key = isinstance(spec, specs.KeyBy) or (
            has_key and not isinstance(spec, specs.DropKey | specs.Unkey)
        )
    timed = [
        (row[0], (time, row[1])) if has_key else (time, row)
        for time, some in zip(times, made, strict=True)
        for row in some
    ]
    attributes = {"takes_pairs": keyed, "takes_times": True}
    given_rows = [
        (row % 3, (time, row)) if keyed else (time, row)
        for time, row in zip(times, rows, strict=True)
    ]
    fused = fuse(nodes(chain, **attributes))
    dropped = fuse(nodes([*chain, DropTime()], **attributes))

    if chain:
        assert fused.function(given_rows) == timed, fused.source
    assert dropped.function(given_rows) == list(itertools.chain(*made)), dropped.source


def _one(row: int, *, keyed: bool) -> list[Any]:
    return [(row % 3, row)] if keyed else [row]


@given(chains(keyed=False), NUMBERS)
def test_only_keys_are_the_keys_of_the_rows(chain: list[Spec], rows: list[int]) -> None:
    """A combiner of counts asks for keys alone and gets as many as there are rows."""
    if any(isinstance(spec, specs.KeyBy) for spec in chain):
        chain = [*chain, specs.DropKey()]
    chain = [*chain, specs.KeyBy(is_odd)]
    keys: list[Any] = []
    fuse(nodes(chain), take_keys=keys.extend).function(rows)

    assert keys == [key for key, _ in expected(chain, rows, keyed=False)]


def test_functions_written_in_c_are_told_apart() -> None:
    """All of them work on the one line that pulls rows; the guilty one is found."""
    chain = nodes([specs.FlatMap(str.split), specs.Map(int), specs.KeyBy(chr)])
    run = (*chain, *nodes([specs.Combine(builtin("count"))]))
    counted = CountCombineOperator(run, Config(combine_keys_max=10), ManualClock())
    for rows, guilty in (
        (["1 2", 3], chain[0]),
        (["1 2", "3 x"], chain[1]),
        (["1 2", "-1"], chain[2]),
    ):
        with pytest.raises((TypeError, ValueError)) as raised:
            counted.process(rows)
        found = blame(raised.value, counted, rows)

        assert (found.node, found.row_index) == (guilty, 1)


# Failures.


class FunctionRaisedError(Exception):
    """What the poisoned function raises."""


def poisoned(function: Callable[[Any], Any], bad: Any) -> Callable[[Any], Any]:
    """Return the function, except that it raises on one value."""

    def check(value: Any) -> Any:
        if value == bad:
            raise FunctionRaisedError
        return function(value)

    return check


def lazily_poisoned(function: Callable[[Any], Any], bad: Any) -> Callable[[Any], Any]:
    """Return a generator function that raises after its first item."""

    def check(value: Any) -> Any:
        for item in function(value):
            yield item
            if value == bad:
                raise FunctionRaisedError

    return check


def first_failure(chain: tuple[Node, ...], rows: list[Any]) -> tuple[Node, int] | None:
    """Run row after row and return where a function raises first."""
    for index, row in enumerate(rows):
        pairs: list[Any] = [(None, row)]
        for operator in chain:
            spec: Any = operator.spec
            try:
                pairs = [p for k, v in pairs for p in applied(spec, k, v)]
            except FunctionRaisedError:
                return operator, index
    return None


POISONABLE = specs.Map | specs.Filter | specs.FlatMap | specs.FilterMap | specs.Inspect


@given(chains(keyed=False), st.lists(st.integers(0, 100), min_size=1), st.data())
def test_failure_names_the_operator_and_the_row(
    chain: list[Spec], rows: list[int], data: st.DataObject
) -> None:
    """The traceback alone says where it happened; nothing runs a second time."""
    reached = [
        (number, values)
        for number, spec in enumerate(chain)
        if isinstance(spec, POISONABLE)
        and (values := values_before(chain[:number], rows))
    ]
    assume(reached)
    number, values = data.draw(st.sampled_from(reached), label="operator to poison")
    bad = data.draw(st.sampled_from(values), label="value to raise on")
    target: Any = chain[number]
    is_lazy = isinstance(target, specs.FlatMap) and data.draw(st.booleans())
    poison = lazily_poisoned if is_lazy else poisoned
    chain[number] = type(target)(poison(target.function, bad))
    operator = FusedRowOperator(nodes(chain))
    where = first_failure(operator.nodes, rows)
    assume(where is not None)
    assert where is not None

    with pytest.raises(FunctionRaisedError) as raised:
        operator.process(rows)

    found = blame(raised.value, operator, rows)
    assert (found.node.name, found.row_index) == (where[0].name, where[1])


def values_before(chain: list[Spec], rows: list[int]) -> list[Any]:
    """Return the values that reach the operator after `chain`."""
    made = expected([*chain, specs.DropKey()], rows, keyed=False)
    return [value for value in made if isinstance(value, int)]


def reject(value: Any) -> Any:
    if value == 7:
        raise FunctionRaisedError
    return value


@given(st.lists(st.sampled_from(["map", "filter", "inspect"]), min_size=2, max_size=5))
def test_same_function_in_several_operators_blames_the_first_to_raise(
    verbs: list[str],
) -> None:
    """A function used twice is told apart by its place in the chain."""
    kinds: dict[str, Any] = {
        "map": specs.Map,
        "filter": specs.Filter,
        "inspect": specs.Inspect,
    }
    shift: list[Spec] = [specs.Map(lambda i: i + 1)]
    chain: list[Spec] = [kinds[verb](reject) for verb in verbs]
    operator = FusedRowOperator(nodes([*chain, *shift, specs.Map(reject)]))

    for row, name in ((7, operator.nodes[0].name), (6, operator.nodes[-1].name)):
        with pytest.raises(FunctionRaisedError) as raised:
            operator.process([0, row])
        assert blame(raised.value, operator, [0, row]).node.name == name


@given(st.lists(st.sampled_from([int, str, len, abs]), min_size=1, max_size=4))
def test_function_written_in_c_is_blamed_by_its_place(
    functions: list[Callable[[Any], Any]],
) -> None:
    """No frame of such a function is in the traceback, only the line that called it."""
    operator = FusedRowOperator(nodes([specs.Map(function) for function in functions]))
    candidates: list[Any] = ["x", [], 5]
    for row in candidates:
        culprit = first_that_raises(operator.nodes, row)
        if culprit is not None:
            with pytest.raises((TypeError, ValueError)) as raised:
                operator.process([row])
            assert blame(raised.value, operator, [row]).node is culprit


def first_that_raises(chain: tuple[Node, ...], value: Any) -> Node | None:
    for node in chain:
        spec: Any = node.spec
        try:
            value = spec.function(value)
        except (TypeError, ValueError):
            return node
    return None


@pytest.mark.parametrize(
    ("rows", "culprit"),
    [([[[1]], [[2], 3]], "flatten-1"), ([[[1]], 5], "flatten-0")],
)
def test_item_that_is_not_iterable_blames_the_operator_that_flattens(
    rows: list[Any], culprit: str
) -> None:
    """Of two in a row, the one that met a number."""
    operator = FusedRowOperator(nodes([specs.Flatten(), specs.Flatten()]))

    with pytest.raises(TypeError) as raised:
        operator.process(rows)

    found = blame(raised.value, operator, rows)
    assert (found.node.name, found.row_index) == (culprit, 1)
