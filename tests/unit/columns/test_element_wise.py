"""The table of what looks at one row at a time, against all that Polars has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.polars_methods import (
    LENGTHENING,
    MANY_ROWS,
    NO_EXPRESSION,
    ROW_WISE,
    ROWS,
    WHOLE,
    methods,
)

from millstream.columns.many_rows import finding

if TYPE_CHECKING:
    from collections.abc import Iterable

# Methods that Polars will take away are methods still.
pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")

CUTS = ((1, 1, 1, 1, 1, 1), (2, 4), (3, 1, 2))


def _tree(expr: pl.Expr) -> Any:
    return json.loads(expr.meta.serialize(format="json"))


def _here(names: Iterable[str]) -> list[str]:
    """Return those that the installed Polars has."""
    return sorted(methods().intersection(names))


def _pieces(sizes: tuple[int, ...]) -> list[pl.DataFrame]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [ROWS[end - n : end] for end, n in zip(ends, sizes, strict=True)]


def assert_same_for_every_cut(expr: pl.Expr) -> None:
    at_once = ROWS.select(expr, at=pl.col("t"))
    for sizes in CUTS:
        cut = [piece.select(expr, at=pl.col("t")) for piece in _pieces(sizes)]
        assert pl.concat(cut).equals(at_once)


def test_every_method_of_polars_has_a_verdict() -> None:
    """A new Polars with a new method fails here, until somebody has looked at it."""
    known = {*ROW_WISE, *LENGTHENING, *MANY_ROWS, *NO_EXPRESSION}

    assert methods() - known == set()


@pytest.mark.parametrize("name", _here(ROW_WISE))
def test_what_is_taken_for_row_wise_does_not_depend_on_the_cut(name: str) -> None:
    """The table says so, and so do the answers for a few rows cut in many ways."""
    expr = ROW_WISE[name]()

    assert finding(_tree(expr)) is None
    assert_same_for_every_cut(expr)


@pytest.mark.parametrize("name", LENGTHENING)
def test_what_changes_the_number_of_rows_may_be_aggregated(name: str) -> None:
    """Beside other columns it may not stand."""
    tree = _tree(LENGTHENING[name]())
    found = finding(tree)

    assert found is not None
    assert "more or fewer values" in found.words
    assert finding(tree, in_groups=True) is None


@pytest.mark.parametrize("name", _here(MANY_ROWS))
def test_what_looks_at_many_rows_is_found(name: str) -> None:
    """Also behind a condition that no row of a sample meets."""
    expr = MANY_ROWS[name]()

    assert finding(_tree(expr)) is not None
    assert finding(_tree(expr), in_groups=True) is not None
    guarded = pl.when(pl.col("y") > 10**6).then(expr)
    assert finding(_tree(guarded)) is not None


@pytest.mark.parametrize("name", WHOLE)
def test_arguments_that_are_looked_at_as_a_whole_must_be_constant(name: str) -> None:
    """The same method with constant values is row-wise."""
    assert finding(_tree(WHOLE[name]())) is not None
    assert finding(_tree(WHOLE[name]()), in_groups=True) is not None


X, Y = pl.col("x"), pl.col("y")


@pytest.mark.parametrize(
    "expr",
    [
        X.is_in(pl.Series([1, 2])),
        pl.col("l").list.eval(pl.element().is_in([1, 2])),
    ],
    ids=str,
)
def test_constant_values_may_be_looked_at_as_a_whole(expr: pl.Expr) -> None:
    """They are the same for every batch, also where items of a list are compared."""
    assert finding(_tree(expr)) is None
    assert_same_for_every_cut(expr)


@pytest.mark.parametrize(
    "expr", [X.filter(Y > 1) * 2, X.drop_nulls().abs().drop_nans()], ids=str
)
def test_values_of_any_number_may_be_aggregated(expr: pl.Expr) -> None:
    """Where nothing but constants stands beside them."""
    assert finding(_tree(expr), in_groups=True) is None


@pytest.mark.parametrize(
    "expr",
    [
        X.filter(Y > 1) + Y.filter(Y > 1),
        X.drop_nulls() + Y.drop_nulls(),
        X.drop_nulls().filter(Y > 1),
        X.filter(X.is_in(Y)),
    ],
    ids=str,
)
def test_values_of_any_number_stand_beside_no_others(expr: pl.Expr) -> None:
    """Two columns without their nulls are paired by position, not by row."""
    assert finding(_tree(expr), in_groups=True) is not None
