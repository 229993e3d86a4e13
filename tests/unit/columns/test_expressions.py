"""Taking aggregate expressions apart, on the trees that Polars writes."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from millstream.columns.expressions import (
    Refused,
    Split,
    expanded,
    has_aggregate,
    selectors,
    split,
)

X, Y = pl.col("x"), pl.col("y")


def _tree(expr: pl.Expr) -> Any:
    return json.loads(expr.meta.serialize(format="json"))


def _split(expr: pl.Expr) -> tuple[str, list[str]]:
    """Return the finishing expression and the kinds of the parts."""
    parts = Split("part")
    finish = split(_tree(expr), parts)
    text = str(pl.Expr.deserialize(json.dumps(finish).encode(), format="json"))
    for number, name in enumerate(parts.parts):
        text = text.replace(name, f"part{number}")
    return text, [part.kind for part in parts.parts.values()]


@pytest.mark.parametrize(
    ("expr", "kind"),
    [
        (X.sum(), "Sum"),
        (pl.len(), "Len"),
        (X.len(), "Count"),
        (X.count(), "Count"),
        (X.min(), "Min"),
        (X.mean(), "Mean"),
        (X.std(), "Std"),
        (X.first(), "First"),
        (X.last(ignore_nulls=True), "LastNonNull"),
        (X.any(), "Any"),
        (X.all(ignore_nulls=False), "All"),
        (X.product(), "Product"),
        (X.n_unique(), "NUnique"),
        (X.approx_n_unique(), "ApproxNUnique"),
        (X.has_nulls(), "HasNulls"),
        (X.top_k(3), "TopK"),
        (X.implode(), "Implode"),
        (X, "Implode"),
        (X + Y, "Implode"),
    ],
)
def test_an_aggregate_is_one_part(expr: pl.Expr, kind: str) -> None:
    """Whichever way Polars writes it; values without an aggregate are collected."""
    assert _split(expr)[1] == [kind]


def test_what_stands_above_aggregates_finishes_them() -> None:
    """The aggregates become columns under their own names, and equal ones are one."""
    finish, kinds = _split((X.sum() / pl.len() - X.sum()).round(1))

    assert kinds == ["Sum", "Len"]
    assert finish == str(
        (
            pl.col("part0").alias("x") / pl.col("part1").alias("len")
            - pl.col("part0").alias("x")
        ).round(1)
    )


def test_names_are_left_to_the_caller() -> None:
    """Renaming by rule looks at column names, which are not the user's any more."""
    plain = _split(X.sum())

    assert _split(X.sum().alias("total").name.keep().name.suffix("_")) == plain


def test_a_part_can_be_taken_of_something_else() -> None:
    """Its options stay."""
    for expr in (X.max(), X.sum(), X.var(ddof=2), X.top_k(4), X.any(), X.count()):
        parts = Split("part")
        split(_tree(expr), parts)

        (part,) = parts.parts.values()
        assert part.over({"Column": "y"}) == json.loads(
            json.dumps(_tree(expr)).replace('"x"', '"y"')
        )


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (X.median(), "approx_quantile"),
        (X.quantile(0.5) * 2, "approx_quantile"),
        (X - X.mean(), "the column 'x' beside aggregates"),
        (X.sum() + X.sum().over("y"), "over cannot be put together"),
        (X.sum().sort(), "sort cannot be put together"),
        (X.top_k(2) + X.sum(), "give lists"),
        (X.top_k(pl.len() // 2), "plain number"),
        (X.item(), "item cannot be put together"),
    ],
)
def test_what_cannot_be_merged_is_refused(expr: pl.Expr, words: str) -> None:
    """In words that say what to use."""
    with pytest.raises(Refused, match=words) as refused:
        _split(expr)

    assert "map_batches" in str(refused.value)


def test_selectors_are_expanded_in_step() -> None:
    """One expression for each column; a single column stays with all of them."""
    tree = _tree(pl.col("a", "b").sum() / pl.col("c", "d").sum())
    found = selectors(tree)

    trees = expanded(tree, {0: ["a", "b"], 1: ["c", "d"]})

    assert len(found) == 2
    assert trees == [
        _tree(pl.col("a").sum() / pl.col("c").sum()),
        _tree(pl.col("b").sum() / pl.col("d").sum()),
    ]


def test_selectors_of_different_lengths_are_refused() -> None:
    """Nobody could say which goes with which."""
    tree = _tree(pl.col("a", "b").sum() / pl.col("c", "d", "e").sum())

    with pytest.raises(Refused, match="2 and 3 columns"):
        expanded(tree, {0: ["a", "b"], 1: ["c", "d", "e"]})


def test_a_name_is_not_an_aggregate() -> None:
    """Columns, aliases and texts may be called as Polars calls the number of rows."""
    assert not has_aggregate(_tree((pl.col("Len") + pl.lit("Len")).alias("Len")))
    assert has_aggregate(_tree(pl.col("Len") + pl.len()))


def test_an_aggregate_of_list_items_is_not_one_of_rows() -> None:
    """It looks into the list of one row."""
    assert not has_aggregate(_tree(X.list.eval(pl.element().sum())))
