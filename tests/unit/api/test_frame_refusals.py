"""What a frame cannot do batch by batch is refused with what to use instead."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = pl.DataFrame(
    {
        "k": ["a", "b"],
        "x": [1, 2],
        "s": ["1", "2"],
        "l": [[1], [2, 3]],
        "t": [date(2020, 1, 1), date(2020, 1, 2)],
    }
)
X = pl.col("x")


def frame() -> ms.Frame:
    return ms.Flow("refusals").from_frame(ROWS)


@pytest.mark.parametrize(
    ("expr", "name", "instead"),
    [
        (X.sum().over("k"), "over", r"\.join\(totals, on=keys\)"),
        (X - X.mean(), "mean", r"\.group_by\(keys\)\.agg"),
        (pl.len(), "len", r"pl\.lit\(0\)"),
        (X.first(), "first", r"\.group_by\(keys\)\.agg"),
        (X.quantile(0.5), "quantile", r"\.agg"),
        ((X > 1).any(), "any", r"\.agg"),
        (X.cum_sum(), "cum_sum", r"\.scan"),
        (pl.col("s").cast(pl.Int64).cum_sum(), "cum_sum", r"\.scan"),
        (X.shift(1), "shift", "map_with_state"),
        (X.diff(), "diff", "map_with_state"),
        (X.interpolate(), "interpolate", "map_with_state"),
        (X.forward_fill(), "fill_null with a strategy", "map_with_state"),
        (X.rolling_mean(3), "rolling", "map_with_state"),
        (X.rolling_mean_by("t", "1d"), "rolling", "map_with_state"),
        (X.sum().rolling("t", period="1d"), "rolling", "map_with_state"),
        (X.ewm_mean(com=1), "ewm_mean", "map_with_state"),
        (X.rank(), "rank", r"\.sort\("),
        (X.sort(), "sort", r"\.limit\("),
        (X.sort_by("t"), "sort_by", r"\.sort\("),
        (X.reverse(), "reverse", r"\.sort\("),
        (X.top_k(2), "top_k", r"\.limit\("),
        (X.head(1), "slice", r"\.limit\("),
        (X.unique(), "unique", r"\.unique\("),
        (X.is_duplicated(), "is_duplicated", r"\.unique\("),
        (X.mode(), "mode", r"pl\.len\(\)"),
        (X.sample(1), "sample", r"hash\(\) % 10"),
        (X.shuffle(), "shuffle", r"hash\(\) % 10"),
        (pl.when(X > 0).then(X.max()), "max", r"\.agg"),
        (pl.struct("k", pl.col("x").cum_sum()), "cum_sum", r"\.scan"),
    ],
    ids=str,
)
@pytest.mark.parametrize("verb", ["select", "with_columns", "filter", "group_by"])
def test_expression_over_many_rows_is_named_with_what_to_use(
    verb: str, expr: pl.Expr, name: str, instead: str
) -> None:
    """Wherever an expression may stand; also where no sample of rows fits it."""
    argument = expr.is_null() if verb == "filter" else expr.alias("made")

    with pytest.raises(ms.UsageError, match=instead) as refused:
        getattr(frame(), verb)(argument)

    assert f"has {name}, which looks at more than one row" in str(refused.value)
    assert f"`{verb}` at test_frame_refusals.py:" in str(refused.value)


@pytest.mark.parametrize(
    "expr",
    [
        X.map_batches(lambda s: s.cum_sum(), return_dtype=pl.Int64),
        X.cumulative_eval(pl.element().sum()),
        pl.col("s").map_batches(lambda s: s / 0, return_dtype=pl.Int64),
    ],
)
def test_what_no_list_names_is_found_by_trying(expr: pl.Expr) -> None:
    """A function that cannot take the sample must say that it is element-wise."""
    with pytest.raises(ms.UsageError, match=r"more than one row.*\.map_batches\("):
        frame().with_columns(made=expr)


@pytest.mark.parametrize(
    "expr",
    [
        X + 1,
        X.fill_null(strategy="zero"),
        X.is_in([1, 2]),
        X.hash(),
        X.map_elements(lambda x: x, return_dtype=pl.Int64),
        pl.col("s").map_batches(lambda s: s / 0, pl.Int64, is_elementwise=True),
        pl.col("s").str.to_date(),
        pl.col("l").list.eval(pl.element().rank()),
        pl.col("l").list.sum(),
        pl.col("t").dt.truncate("1w"),
        pl.when(X > 1).then(X).otherwise(0),
        pl.lit(1),
    ],
)
def test_what_looks_at_one_row_is_taken(expr: pl.Expr) -> None:
    """Also where it looks at all items of a list, or guesses the format of a date."""
    assert "made" in frame().with_columns(made=expr).schema


@pytest.mark.parametrize(
    "expr", [X.filter(X > 1), pl.col("l").explode(), pl.lit(pl.Series([1, 2, 3]))]
)
def test_column_of_another_length_is_refused(expr: pl.Expr) -> None:
    """The frame's own verbs do it."""
    with pytest.raises(ms.UsageError, match=r"more or fewer values.*\.explode\("):
        frame().with_columns(made=expr)


@pytest.mark.parametrize(
    ("expr", "instead"),
    [
        (X.median(), "approx_quantile"),
        (X.mode(), r"\.group_by\(\.\.\., 'value'\)"),
        (X.value_counts(), r"\.group_by\(\.\.\., 'value'\)"),
        (X.slice(0, 2), "top_k"),
        (X.unique().len(), "n_unique"),
        (X.sort().first(), "bottom_k"),
        (X.arg_min(), r"smallest is in pl\.struct\('x', 'value'\)\.bottom_k"),
        (pl.col("s").get(X.arg_max()), r"greatest is in pl\.struct"),
        (X.sort_by("t").last(), r"pl\.struct"),
        (X.max_by("t"), r"greatest is in pl\.struct"),
        (X.skew(), "frame_aggregate"),
        (
            pl.map_groups([X], lambda s: s[0].sum(), pl.Int64, returns_scalar=True),
            "frame_aggregate",
        ),
    ],
)
def test_aggregate_that_cannot_be_merged_says_what_to_use(
    expr: pl.Expr, instead: str
) -> None:
    """And that the values can be collected."""
    with pytest.raises(ms.UsageError, match=rf"{instead}.*\.implode\(\)"):
        frame().group_by("k").agg(expr)


def test_advice_for_the_greatest_gives_what_polars_gives() -> None:
    """A structure is greatest where its first field is."""
    rows = pl.concat([ROWS, ROWS.with_columns(X * 3, pl.col("s") + "!")])
    flow = ms.Flow("greatest")
    grouped = flow.from_frame(rows).group_by("k")
    tops = grouped.agg(top=pl.struct("x", "s").top_k(1))
    result = tops.select("k", s=pl.col("top").list.first().struct.field("s")).collect()
    flow.run(on="local", workers=2)

    expected = rows.group_by("k").agg(pl.col("s").max_by("x"))
    assert result.result().sort("k").equals(expected.sort("k"))


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("with_row_index", "tells rows apart"),
        ("tail", "descending=True"),
        ("shift", "map_with_state"),
        ("pivot", "group_by"),
        ("group_by_dynamic", "window"),
    ],
)
def test_verb_of_polars_that_is_not_here_says_what_to_use(
    verb: str, instead: str
) -> None:
    """What is no verb of Polars is just not there."""
    with pytest.raises(ms.UsageError, match=instead):
        getattr(frame(), verb)

    assert not hasattr(frame(), "no_such_verb")


OTHER = ROWS.select("k", number="x")
JOINS: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "how": (lambda f, o: f.join(o, "k", how="full"), "got 'full'; for a full join"),
    "no keys": (lambda f, o: f.join(o), "either on, or left_on and right_on"),
    "half": (lambda f, o: f.join(o, left_on="k"), "either on, or left_on and right_on"),
    "counts": (
        lambda f, o: f.join(o, left_on=["k", "x"], right_on=["k"]),
        "as many columns on the left as on the right, got 2 and 1",
    ),
    "left": (lambda f, o: f.join(o, "number"), "column 'number' of the left side"),
    "right": (lambda f, o: f.join(o, "x"), "column 'x' of the right side"),
    "types": (
        lambda f, o: f.join(o, left_on="x", right_on="k"),
        "the right ones {'k': String, 'number': Int64}",
    ),
    "expression": (lambda f, o: f.join(o, pl.col("k")), "takes names of columns"),
    "lazy": (lambda f, _o: f.join(ROWS.lazy(), "k"), "got LazyFrame; collect it first"),
    "twice": (lambda f, o: f.join(o, "k").join(o, "k").join(o, "k"), "number_right"),
}


@pytest.mark.parametrize("name", JOINS)
def test_join_that_cannot_be_done_is_refused(name: str) -> None:
    """While the flow is being built, with the place in the program."""
    join, words = JOINS[name]
    flow = ms.Flow("joins")
    left, other = flow.from_frame(ROWS), flow.from_frame(OTHER)

    with pytest.raises(ms.UsageError, match="`join` at test_frame_refusals") as refused:
        join(left, other)

    assert words in str(refused.value)


def test_frames_of_two_flows_cannot_be_joined() -> None:
    """Each has its own workers."""
    left = ms.Flow("one").from_frame(ROWS)
    right = ms.Flow("other").from_frame(OTHER)

    with pytest.raises(ms.UsageError, match="belongs to two flows, 'one' and 'other'"):
        left.join(right, "k")


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (lambda f: f.sort(), "got none"),
        (lambda f: f.sort("x", "k", descending=[True]), "each of the 2, got 1"),
        (lambda f: f.sort(pl.col("x").abs()), r"\.with_columns\(\.\.\.\) first"),
        (lambda f: f.unique("no"), "names the column 'no'"),
        (lambda f: f.unique(), "`l` of type .* cannot be a key"),
        (lambda f: f.fill_null(strategy="forward"), "strategy='forward'"),
        (lambda f: f.unpivot(["x", "s"], index="no"), "no"),
        (lambda f: f.cast({"no": pl.Int8}), "no"),
        (lambda f: f.group_by(pl.col("k", "x")), "one by one"),
        (lambda f: f.group_by(3), "got int 3"),
    ],
)
def test_other_verbs_refuse_what_they_cannot_take(
    verb: Callable[[ms.Frame], object], words: str
) -> None:
    """At the line where it was written."""
    with pytest.raises(ms.UsageError, match=words) as refused:
        verb(frame())

    assert "test_frame_refusals.py:" in str(refused.value)
