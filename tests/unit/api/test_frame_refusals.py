"""What a frame cannot do batch by batch is refused with what to use instead."""

from __future__ import annotations

import threading
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
        pl.map_batches(["x"], lambda s: s[0].cum_sum(), return_dtype=pl.Int64),
        pl.when(X > 10**6).then(X.map_batches(lambda s: s.cum_sum())),
        pl.col("s").map_batches(lambda s: s.str.len_chars(), return_dtype=pl.UInt32),
        pl.col("l").list.eval(pl.element().map_batches(lambda s: s.cum_sum())),
        X.reshape((-1,)),
    ],
    ids=str,
)
def test_what_may_look_at_many_rows_must_be_promised_to_be_element_wise(
    expr: pl.Expr,
) -> None:
    """What a Python function does cannot be seen, and no sample proves it."""
    with pytest.raises(
        ms.UsageError, match=r"may look at more than one row.*\.map_batches\("
    ):
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
        pl.col("s").str.to_date("%Y"),
        pl.col("l").list.eval(pl.element().rank()),
        pl.col("l").list.sum(),
        pl.col("t").dt.truncate("1w"),
        pl.when(X > 1).then(X).otherwise(0),
        pl.lit(1),
    ],
)
def test_what_looks_at_one_row_is_taken(expr: pl.Expr) -> None:
    """Also where it looks at all items of a list."""
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


NESTED = pl.DataFrame(
    {
        "list": [[1], [2]],
        "struct": [{"u": 1}, {"u": 2}],
        "array": [[1], [2]],
        "x": [1, 2],
    },
    schema_overrides={"array": pl.Array(pl.Int64, 1)},
)
BY_KEY: dict[str, Callable[[Any, str], object]] = {
    "group_by": lambda f, key: f.group_by(key),
    "group_by of an expression": lambda f, key: f.group_by(made=pl.col(key)),
    "unique": lambda f, key: f.unique(key),
    "join": lambda f, key: f.join(f.select(key, y="x"), key),
    "join of a static frame": lambda f, key: f.join(NESTED.select(key, y="x"), key),
    "keyed_join": lambda f, key: f.keyed_join(f.select(key, y="x"), key),
    "interval_join": lambda f, key: f.event_time("x").interval_join(
        f.select(key, y="x").event_time("y"), 0, 1, on=key
    ),
    "window_join": lambda f, key: f.event_time("x").window_join(
        f.select(key, y="x").event_time("y"), ms.windows.tumbling(1), on=key
    ),
    "asof_join": lambda f, key: f.event_time("x").asof_join(
        f.select(key, y="x").event_time("y"), on=key
    ),
    "delta_iterate": lambda f, key: f.select(key, "x").delta_iterate(
        key, pl.col("x").min(), lambda new: new
    ),
}


@pytest.mark.parametrize("key", ["list", "struct", "array"])
@pytest.mark.parametrize("name", BY_KEY)
def test_nested_column_is_no_key_wherever_rows_go_by_key(name: str, key: str) -> None:
    """While the flow is being built, and not on some paths of a running job."""
    rows = ms.Flow("keys").from_frame(NESTED)

    with pytest.raises(ms.UsageError, match=r"test_frame_refusals.*cannot be a key"):
        BY_KEY[name](rows, key)


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
    "lazy": (
        lambda f, _o: f.join(ROWS.lazy(), "k"),
        "got LazyFrame of polars; collect it first",
    ),
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


GUARD, LABELS = pl.when(X > 10**6), ["low", "high"]
LOCK = threading.Lock()
CATEGORY = pl.col("k").cast(pl.Categorical)


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (X.is_in(pl.col("t").dt.day()), r"has is_in of a column.*\.join\("),
        (pl.col("s").replace(pl.col("k"), "z"), "has replace of a column"),
        (GUARD.then(X.bin_ranks(2, labels=LABELS)), r"bin_ranks.*\.bin_intervals\("),
        (GUARD.then(pl.col("s").str.join(",")), r"has str\.join"),
        (GUARD.then(X.bitwise_and()), "has bitwise_and"),
        (pl.fold(0, lambda a, b: a + b, ["x"]), r"has fold.*sum_horizontal"),
        (X.pipe_with_dtype(lambda expr, _: expr.sum()), "pipe_with_dtype.*schema"),
        (pl.col("s").str.to_datetime(), "time without a format.*format='%Y-%m-%d'"),
        (CATEGORY.to_physical(), "number of a category.*Enum"),
        (CATEGORY.cat.physical(), "number of a category.*Enum"),
        (
            X.map_batches(lambda s: s.cum_sum(), pl.Int64, is_elementwise=True),
            "gives another answer for other batches",
        ),
        (X.map_elements(LOCK.acquire, pl.Boolean), "cannot be pickled"),
    ],
)
def test_what_polars_calls_row_separable_is_refused_all_the_same(
    expr: pl.Expr, words: str
) -> None:
    """Polars says so of `is_in`; and no row of a sample may take a guarded branch."""
    with pytest.raises(ms.UsageError, match=words):
        frame().with_columns(made=expr)


IS_IN_A_COLUMN = X.is_in(pl.col("t").dt.day())


@pytest.mark.parametrize("expr", [IS_IN_A_COLUMN, ~IS_IN_A_COLUMN], ids=["in", "not"])
def test_rows_are_not_kept_by_what_is_in_a_column(expr: pl.Expr) -> None:
    """Which rows were kept depended on how they were cut into batches."""
    with pytest.raises(ms.UsageError, match=r"has is_in of a column.*\.join\("):
        frame().filter(expr)


def test_arguments_that_can_be_read_once_are_looked_at_all_the_same() -> None:
    """A generator is empty for whoever comes second."""
    exprs = (expr.alias("made") for expr in [X + 1])

    assert list(frame().select(exprs).schema) == ["made"]
    with pytest.raises(ms.UsageError, match="has cum_sum"):
        frame().select(expr for expr in [X.cum_sum()])
    with pytest.raises(ms.UsageError, match="has cum_sum"):
        frame().select({"made": X.cum_sum()}.values())


@pytest.mark.parametrize(
    "expr",
    [
        X.filter(X.is_in(pl.col("t").dt.day())).sum(),
        X.drop_nulls().dot(pl.col("t").drop_nulls().dt.day()),
        pl.struct("x").is_in(pl.struct("x")).sum(),
        pl.when(X > 10**6).then(X.bitwise_and()).max(),
        X.bitwise_and(),
        X.map_batches(lambda s: s.cum_sum(), pl.Int64).sum(),
        CATEGORY.alias("c").to_physical().max(),
    ],
    ids=str,
)
def test_aggregate_of_what_looks_at_several_rows_is_refused(expr: pl.Expr) -> None:
    """The rows of a key come in many batches too."""
    with pytest.raises(ms.UsageError, match="several rows of a key"):
        frame().group_by("k").agg(expr)


@pytest.mark.parametrize(
    "expr",
    [
        X.sum().rank(),
        X.sum().is_in(X.max()),
        X.sum().map_batches(lambda s: s, pl.Int64),
        pl.lit(pl.Series([1, 2])),
    ],
    ids=str,
)
def test_what_is_done_with_aggregates_looks_at_one_key(expr: pl.Expr) -> None:
    """And what follows aggregates is checked in the same way."""
    with pytest.raises(ms.UsageError, match="what is done with the aggregates"):
        frame().group_by("k").agg(expr)


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ({"x": "sum"}, "write .agg(pl.col('x').sum())"),
        ({"x": ["min", "avg"]}, "write .agg(pl.col('x').min(), pl.col('x').mean())"),
        ([{"x": "sum"}], "write .agg(pl.col('x').sum())"),
    ],
    ids=str,
)
def test_aggregates_as_a_dict_are_refused_with_the_right_spelling(
    asked: Any, written: str
) -> None:
    """Its keys would be taken for columns, and give lists."""
    with pytest.raises(ms.UsageError) as refused:
        frame().group_by("k").agg(asked)

    assert written in str(refused.value)


SECRET: dict[str, Callable[[Any], object]] = {
    "with_columns": lambda f: f.event_time("x").with_columns(__time=pl.col("x")),
    "select": lambda f: f.event_time("x").select(__origin_watermark=pl.col("x")),
    "rename": lambda f: f.event_time("x").rename({"x": "__time"}),
    "unpivot": lambda f: f.event_time("x").unpivot(["x"], value_name="__time"),
    "join": lambda f: f.event_time("x").join(ROWS.select("k", __time="x"), "k"),
    "event_time": lambda f: f.rename({"x": "__time"}).event_time("__time"),
    "window": lambda f: (
        f.rename({"x": "__pane"}).group_by("k").window(ms.windows.count(2))
    ),
    "keyed_join": lambda f: f.rename({"x": "__index"}).keyed_join(f.select("k"), "k"),
    "to_frame": lambda f: f.event_time("x").to_rows().to_frame({"__time": pl.Int64}),
    "map_batches": lambda f: f.event_time("x").map_batches(
        lambda rows: rows, schema={"__time": pl.Int64}
    ),
}


@pytest.mark.parametrize("verb", SECRET)
def test_columns_of_the_engine_cannot_be_named(verb: str) -> None:
    """The user's would be taken for them, in a running job or in its results."""
    with pytest.raises(
        ms.UsageError, match=f"`{verb}` at .*two underscores.*rename it"
    ):
        SECRET[verb](frame())


def test_names_of_the_engine_are_free_where_it_has_no_columns() -> None:
    """A file may have any."""
    flow = ms.Flow("free")
    rows = flow.from_frame(ROWS.select("k", __time="x")).group_by("k")
    sums = rows.agg(pl.col("__time").sum()).collect()
    flow.run(on="local")

    assert sorted(sums.result().rows()) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("withColumn", r"with_columns\(name="),
        ("groupBy", "group_by"),
        ("distinct", "unique"),
        ("unionAll", "union"),
        ("where", "filter"),
        ("orderBy", "sort"),
        ("toPandas", "to_pandas"),
    ],
)
def test_verb_of_pyspark_says_how_it_is_called_here(verb: str, instead: str) -> None:
    """Whoever comes from there tries it first."""
    with pytest.raises(
        ms.UsageError, match=f"`{verb}` at .* is no verb of .*{instead}"
    ):
        getattr(frame(), verb)


def test_aggregates_of_groups_are_written_with_agg() -> None:
    """Polars, pandas and PySpark have them as verbs of groups."""
    grouped = frame().group_by("k")

    with pytest.raises(ms.UsageError, match=r"use \.agg\(pl\.col\(\.\.\.\)\.sum\(\)\)"):
        grouped.sum()  # type: ignore[attr-defined]  # which is the point
    with pytest.raises(ms.UsageError, match=r"use \.agg\(pl\.len\(\)\)"):
        grouped.count()  # type: ignore[attr-defined]  # which is the point
    assert not hasattr(grouped, "no_such_verb")


def test_frame_shows_its_columns() -> None:
    """In its repr too, and where names are completed."""
    rows = frame().select("k", "x")

    assert rows.columns == ["k", "x"]
    assert repr(rows).endswith("with k: String, x: Int64>")
    assert "schema" in dir(rows)
    assert "Frame" in dir(ms)


def test_error_of_polars_names_no_file_of_polars() -> None:
    """Nobody can look for the cause there."""
    flow = ms.Flow("wrong")
    flow.from_frame(ROWS).cast({"k": pl.Int64}).collect()

    with pytest.raises(ms.OperatorError, match="conversion from `str`") as failed:
        flow.run(on="local")

    assert "raised in" not in str(failed.value)
