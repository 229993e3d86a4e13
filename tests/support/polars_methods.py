"""Every method of Polars' expressions, with what it is: the verdicts to compare with.

An example has a column in every argument that can take one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

import polars as pl

X, Y, K = pl.col("x"), pl.col("y"), pl.col("k")
F, G, U = pl.col("f"), pl.col("g"), pl.col("u")
S, P, D = pl.col("s"), pl.col("p"), pl.col("d")
L, L2, A, A2 = pl.col("l"), pl.col("l2"), pl.col("a"), pl.col("a2")
T, T2, TM, DUR = pl.col("t"), pl.col("t2"), pl.col("tm"), pl.col("dur")
ST, B, B2, C, M = pl.col("st"), pl.col("b"), pl.col("b2"), pl.col("c"), pl.col("m")
E = pl.element()

ROWS = pl.DataFrame(
    {
        "x": [3, 1, None, 2, 2, 5],
        "y": [1, 2, 3, 0, 5, 3],
        "k": [4, 3, 5, 3, None, 9],
        "u": [True, False, None, True, True, False],
        "f": [0.5, -0.25, None, 0.75, 0.1, 0.0],
        "g": [0.5, 2.0, 1.0, None, 0.3, 4.0],
        "s": ["xy", "yy", "xz", None, "xw", ""],
        "p": ["x", "z", "y", "q", "x", "w"],
        "d": ["2", "11", "3", None, "10", "7"],
        "l": [[1, 2], [3], [], None, [2, 2, 7], [5, None]],
        "l2": [[2], [3, 4], [1], [9], None, [5]],
        "a": [[1, 2], [3, 3], None, [4, 0], [2, 2], [5, None]],
        "a2": [[2, 2], [1, 3], [4, 4], [0, 0], None, [7, 1]],
        "t": [
            datetime(2020, 1, 1 + i, i, tzinfo=UTC).replace(tzinfo=None)
            for i in range(6)
        ],
        "t2": [date(2021, 3, 20 + i) for i in range(6)],
        "tm": [time(i, 30) for i in range(6)],
        "dur": [timedelta(hours=7 * i) for i in range(6)],
        "st": [{"v": i % 3, "w": i} for i in range(6)],
        "b": [b"xyzv", b"yyyy", b"xzxz", None, b"xwxw", b"abcd"],
        "b2": [b"x", b"z", b"x", b"q", None, b"cd"],
        "c": ["b", "a", "b", None, "cc", "a"],
        "m": [[{"key": i, "value": i}] for i in range(6)],
        "every": ["1d", "2d", "1h", "1d", "3h", "1d"],
    },
    schema_overrides={
        "a": pl.Array(pl.Int64, 2),
        "a2": pl.Array(pl.Int64, 2),
        "c": pl.Categorical,
    },
)
EVERY = pl.col("every")

Made = Callable[[], Any]


def _plain(base: pl.Expr, names: str, space: str = "") -> dict[str, Made]:
    """Return examples of methods without arguments."""
    prefix = f"{space}." if space else ""
    return {f"{prefix}{n}": _call(base, space, n) for n in names.split()}


def _call(base: pl.Expr, space: str, name: str) -> Made:
    method: Made = getattr(getattr(base, space) if space else base, name)
    return method


def _sums(series: pl.Series) -> pl.Series:
    return series.cum_sum()


def _text(value: int) -> str:
    return f"<{value}>"


ROW_WISE: dict[str, Made] = {
    **_plain(
        F,
        """
        abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh cot degrees
        erf erfc exp floor hash is_finite is_infinite is_nan is_not_nan is_not_null is_null
        log10 log1p neg radians round set_sorted sign sin sinh sqrt tan tanh to_physical
        truncate
        """,
    ),
    **_plain(
        X,
        """
        bitwise_count_ones bitwise_count_zeros bitwise_leading_ones bitwise_leading_zeros
        bitwise_trailing_ones bitwise_trailing_zeros
        """,
    ),
    **_plain(
        L,
        """
        all any arg_max arg_min diff drop_nulls first last len max mean median min n_unique
        reverse sort std sum unique var head tail
        """,
        "list",
    ),
    **_plain(
        A,
        """
        all any arg_max arg_min first head last len max mean median min n_unique reverse
        sort std sum tail to_list unique var
        """,
        "arr",
    ),
    **_plain(B, "size head tail", "bin"),
    **_plain(C, "len_bytes len_chars", "cat"),
    **_plain(
        T,
        """
        century date day days_in_month epoch hour is_business_day is_leap_year iso_year
        microsecond millennium millisecond minute month month_end month_start nanosecond
        ordinal_day quarter second time timestamp to_string week weekday year
        """,
        "dt",
    ),
    **_plain(
        DUR,
        """
        total_days total_hours total_microseconds total_milliseconds total_minutes
        total_nanoseconds total_seconds
        """,
        "dt",
    ),
    **_plain(M.list.to_map(), "entries keys len values", "map"),
    **_plain(
        S,
        """
        escape_regex len_bytes len_chars normalize reverse to_lowercase to_titlecase
        to_uppercase
        """,
        "str",
    ),
    **_plain(ST, "json_encode unnest", "struct"),
    **_plain(X, "keep to_lowercase to_uppercase", "name"),
    "add": lambda: X + Y,
    "alias": lambda: X.alias("z"),
    "and_": lambda: U & (X > Y),
    "bin_intervals": lambda: X.bin_intervals([2], labels=["a", "b"]),
    "cast": lambda: X.cast(pl.String),
    "clip": lambda: X.clip(Y, K),
    "cut": lambda: X.cut([1, 2]),
    "eq": lambda: X == Y,
    "eq_missing": lambda: X.eq_missing(Y),
    "exclude": lambda: pl.all().exclude("y"),
    "fill_nan": lambda: F.fill_nan(G),
    "fill_null": lambda: X.fill_null(Y),
    "floordiv": lambda: X // Y,
    "ge": lambda: X >= Y,
    "gt": lambda: X > Y,
    "is_between": lambda: X.is_between(Y, K),
    "is_close": lambda: F.is_close(G),
    "is_in": lambda: X.is_in([1, 2, 9]),
    "le": lambda: X <= Y,
    "log": lambda: X.log(G),
    "lt": lambda: X < Y,
    "map_elements": lambda: X.map_elements(_text, return_dtype=pl.String),
    "mod": lambda: X % Y,
    "mul": lambda: X * Y,
    "ne": lambda: X != Y,
    "ne_missing": lambda: X.ne_missing(Y),
    "not_": lambda: ~U,
    "or_": lambda: U | (X > Y),
    "pipe": lambda: X.pipe(lambda expr: expr + 1),
    "pow": lambda: X**Y,
    "reinterpret": lambda: X.reinterpret(signed=False),
    "repeat_by": lambda: X.repeat_by(Y),
    "replace": lambda: X.replace({1: 2, 5: 1}),
    "replace_strict": lambda: X.replace_strict({1: 2}, default=Y),
    "round_sig_figs": lambda: F.round_sig_figs(1),
    "search_sorted": lambda: pl.lit(pl.Series([1, 3, 5])).search_sorted(Y),
    "sub": lambda: X - Y,
    "truediv": lambda: X / K,
    "truncdiv": lambda: X.truncdiv(K),
    "xor": lambda: U ^ (X > Y),
    "list.agg": lambda: L.list.agg(E.sum()),
    "list.concat": lambda: L.list.concat(L2),
    "list.contains": lambda: L.list.contains(X),
    "list.count_matches": lambda: L.list.count_matches(2),
    "list.eval": lambda: L.list.eval(E.rank()),
    "list.filter": lambda: L.list.filter(E > 1),
    "list.gather": lambda: L.list.gather(L2, null_on_oob=True),
    "list.gather_every": lambda: L.list.gather_every(K, Y),
    "list.get": lambda: L.list.get(Y, null_on_oob=True),
    "list.item": lambda: L.list.head(1).list.item(allow_empty=True),
    "list.join": lambda: L.cast(pl.List(pl.String)).list.join(P),
    "list.set_difference": lambda: L.list.set_difference(L2),
    "list.set_intersection": lambda: L.list.set_intersection(L2),
    "list.set_symmetric_difference": lambda: L.list.set_symmetric_difference(L2),
    "list.set_union": lambda: L.list.set_union(L2),
    "list.shift": lambda: L.list.shift(Y),
    "list.slice": lambda: L.list.slice(Y, K),
    "list.to_array": lambda: pl.concat_list(X, Y).list.to_array(2),
    "list.to_map": M.list.to_map,
    "list.to_struct": lambda: L.list.to_struct(fields=["v"]),
    "arr.agg": lambda: A.arr.agg(E.sum()),
    "arr.contains": lambda: A.arr.contains(X),
    "arr.count_matches": lambda: A.arr.count_matches(2),
    "arr.dot": lambda: A.arr.dot(A2),
    "arr.eval": lambda: A.arr.eval(E.rank()),
    "arr.get": lambda: A.arr.get(Y, null_on_oob=True),
    "arr.join": lambda: A.cast(pl.Array(pl.String, 2)).arr.join(P),
    "arr.shift": lambda: A.arr.shift(Y),
    "arr.slice": lambda: A.arr.slice(0, 1),
    "arr.to_struct": A.arr.to_struct,
    "bin.contains": lambda: B.bin.contains(B2),
    "bin.decode": lambda: B.bin.encode("hex").cast(pl.Binary).bin.decode("hex"),
    "bin.encode": lambda: B.bin.encode("base64"),
    "bin.ends_with": lambda: B.bin.ends_with(B2),
    "bin.get": lambda: B.bin.get(Y, null_on_oob=True),
    "bin.reinterpret": lambda: B.bin.reinterpret(dtype=pl.Int32),
    "bin.slice": lambda: B.bin.slice(Y, K),
    "bin.starts_with": lambda: B.bin.starts_with(B2),
    "cat.ends_with": lambda: C.cat.ends_with("c"),
    "cat.physical": C.cast(pl.Enum(["a", "b", "cc"])).cat.physical,
    "cat.slice": lambda: C.cat.slice(0, 1),
    "cat.starts_with": lambda: C.cat.starts_with("a"),
    "dt.add_business_days": lambda: T2.dt.add_business_days(X, roll="forward"),
    "dt.base_utc_offset": T.dt.replace_time_zone("UTC").dt.base_utc_offset,
    "dt.cast_time_unit": lambda: T.dt.cast_time_unit("ms"),
    "dt.combine": lambda: T2.dt.combine(TM),
    "dt.convert_time_zone": lambda: T.dt.replace_time_zone("UTC").dt.convert_time_zone(
        "Europe/Berlin"
    ),
    "dt.dst_offset": T.dt.replace_time_zone("UTC").dt.dst_offset,
    "dt.offset_by": lambda: T.dt.offset_by(EVERY),
    "dt.replace": lambda: T.dt.replace(day=K),
    "dt.replace_time_zone": lambda: T.dt.replace_time_zone(
        "UTC", ambiguous=pl.when(U).then(pl.lit("raise")).otherwise(pl.lit("null"))
    ),
    "dt.round": lambda: T.dt.round(EVERY),
    "dt.strftime": lambda: T.dt.strftime("%Y"),
    "dt.truncate": lambda: T.dt.truncate(EVERY),
    "ext.storage": X.ext.storage,
    "map.contains_key": lambda: M.list.to_map().map.contains_key(X),
    "map.get": lambda: M.list.to_map().map.get(X),
    "name.map": lambda: X.name.map(str.upper),
    "name.map_fields": lambda: ST.name.map_fields(str.upper),
    "name.prefix": lambda: X.name.prefix("z"),
    "name.prefix_fields": lambda: ST.name.prefix_fields("z"),
    "name.replace": lambda: X.name.replace("x", "z"),
    "name.strip_prefix": lambda: EVERY.name.strip_prefix("e"),
    "name.strip_suffix": lambda: EVERY.name.strip_suffix("y"),
    "name.suffix": lambda: X.name.suffix("z"),
    "name.suffix_fields": lambda: ST.name.suffix_fields("z"),
    "str.contains": lambda: S.str.contains(P),
    "str.contains_any": lambda: S.str.contains_any(["x", "w"]),
    "str.count_matches": lambda: S.str.count_matches(P),
    "str.decode": lambda: S.str.encode("hex").str.decode("hex"),
    "str.encode": lambda: S.str.encode("base64"),
    "str.ends_with": lambda: S.str.ends_with(P),
    "str.extract": lambda: S.str.extract(P, 0),
    "str.extract_all": lambda: S.str.extract_all(P),
    "str.extract_groups": lambda: S.str.extract_groups("(x)(.)"),
    "str.extract_many": lambda: S.str.extract_many(["x", "w"]),
    "str.find": lambda: S.str.find(P),
    "str.find_many": lambda: S.str.find_many(["x", "w"]),
    "str.head": lambda: S.str.head(Y),
    "str.json_decode": lambda: D.str.json_decode(pl.Int64),
    "str.json_path_match": lambda: D.str.json_path_match("$." + P),
    "str.pad_end": lambda: S.str.pad_end(K),
    "str.pad_start": lambda: S.str.pad_start(K),
    "str.replace": lambda: S.str.replace("x", P),
    "str.replace_all": lambda: S.str.replace_all("x", P),
    "str.replace_many": lambda: S.str.replace_many({"x": "w", "y": "z"}),
    "str.slice": lambda: S.str.slice(Y, K),
    "str.split": lambda: S.str.split(P),
    "str.split_exact": lambda: S.str.split_exact(P, 1),
    "str.splitn": lambda: S.str.splitn(P, 2),
    "str.starts_with": lambda: S.str.starts_with(P),
    "str.strip_chars": lambda: S.str.strip_chars(P),
    "str.strip_chars_end": lambda: S.str.strip_chars_end(P),
    "str.strip_chars_start": lambda: S.str.strip_chars_start(P),
    "str.strip_prefix": lambda: S.str.strip_prefix(P),
    "str.strip_suffix": lambda: S.str.strip_suffix(P),
    "str.strptime": lambda: T2.dt.to_string().str.strptime(pl.Date, "%Y-%m-%d"),
    "str.tail": lambda: S.str.tail(Y),
    "str.to_date": lambda: T2.dt.to_string().str.to_date("%Y-%m-%d"),
    "str.to_datetime": lambda: T.dt.to_string("%Y-%m-%d %H:%M").str.to_datetime(
        "%Y-%m-%d %H:%M"
    ),
    "str.to_decimal": lambda: D.str.to_decimal(scale=2),
    "str.to_integer": lambda: D.str.to_integer(base=X + 9),
    "str.to_time": lambda: TM.dt.to_string("%H:%M").str.to_time("%H:%M"),
    "str.zfill": lambda: D.str.zfill(K),
    "struct.drop": lambda: ST.struct.drop(["v"]),
    "struct.eval": lambda: ST.struct.eval(pl.field("v") + 1),
    "struct.field": lambda: ST.struct.field("v"),
    "struct.rename_fields": lambda: ST.struct.rename_fields(["p", "q"]),
    "struct.with_fields": lambda: ST.struct.with_fields(z=pl.field("v") + X),
    "pl.all_horizontal": lambda: pl.all_horizontal(U, X > Y),
    "pl.any_horizontal": lambda: pl.any_horizontal(U, X > Y),
    "pl.arctan2": lambda: pl.arctan2(F, G),
    "pl.business_day_count": lambda: pl.business_day_count(
        T2, T2 + pl.duration(days=K)
    ),
    "pl.coalesce": lambda: pl.coalesce(X, Y),
    "pl.concat_arr": lambda: pl.concat_arr(X, Y),
    "pl.concat_list": lambda: pl.concat_list(X, Y),
    "pl.concat_str": lambda: pl.concat_str(S, P),
    "pl.date": lambda: pl.date(2020, 1, K),
    "pl.date_ranges": lambda: pl.date_ranges(T2, T2 + pl.duration(days=2)),
    "pl.datetime": lambda: pl.datetime(2020, 1, K),
    "pl.datetime_ranges": lambda: pl.datetime_ranges(T, T + pl.duration(days=2)),
    "pl.duration": lambda: pl.duration(days=K),
    "pl.exclude": lambda: pl.exclude("y"),
    "pl.format": lambda: pl.format("{}-{}", X, S),
    "pl.from_epoch": lambda: pl.from_epoch(X),
    "pl.int_ranges": lambda: pl.int_ranges(Y, K),
    "pl.linear_spaces": lambda: pl.linear_spaces(Y, K, 3),
    "pl.list": lambda: pl.list(X, Y),
    "pl.lit": lambda: X + pl.lit(1),
    "pl.max_horizontal": lambda: pl.max_horizontal(X, Y),
    "pl.mean_horizontal": lambda: pl.mean_horizontal(X, Y),
    "pl.min_horizontal": lambda: pl.min_horizontal(X, Y),
    "pl.nth": lambda: pl.nth(0),
    "pl.sql_expr": lambda: pl.sql_expr("x + y"),
    "pl.struct": lambda: pl.struct(X, Y),
    "pl.sum_horizontal": lambda: pl.sum_horizontal(X, Y),
    "pl.time": lambda: pl.time(K),
    "pl.time_ranges": lambda: pl.time_ranges(TM, pl.time(23), "1h"),
    "pl.when": lambda: pl.when(U).then(X).otherwise(Y),
}
"""One value for every row."""

LENGTHENING: dict[str, Made] = {
    **_plain(F, "drop_nans drop_nulls"),
    "explode": L.explode,
    "filter": lambda: X.filter(Y > 1),
    "arr.explode": A.arr.explode,
    "list.explode": L.list.explode,
}
"""Any number of values for a row, which still looks at that row alone."""


def _windows() -> dict[str, Made]:
    """Return examples of all methods that begin with rolling."""
    made: dict[str, Made] = {
        "rolling": lambda: X.sum().rolling("t", period="1d"),
        "rolling_map": lambda: X.rolling_map(lambda values: values.sum(), 2),
        "rolling_quantile": lambda: X.rolling_quantile(0.5, "nearest", 2),
        "rolling_quantile_by": lambda: X.rolling_quantile_by(
            "t", window_size="1d", quantile=0.5
        ),
    }
    for name in ["max", "mean", "median", "min", "rank", "std", "sum", "var"]:
        made[f"rolling_{name}"] = partial(getattr(X, f"rolling_{name}"), 2)
        made[f"rolling_{name}_by"] = partial(
            getattr(X, f"rolling_{name}_by"), "t", "1d"
        )
    for name in ["kurtosis", "skew"]:
        made[f"rolling_{name}"] = partial(getattr(X, f"rolling_{name}"), 2)
    return made


_AGGREGATES = """
    all any approx_n_unique count cum_count cum_sum first head implode last max mean median
    min n_unique std sum tail var
"""
MANY_ROWS: dict[str, Made] = {
    **_plain(
        X,
        """
        approx_n_unique arg_max arg_min arg_sort arg_unique backward_fill bitwise_and
        bitwise_or bitwise_xor count cum_count cum_max cum_min cum_prod cum_sum diff
        entropy first forward_fill has_nulls head hist implode interpolate is_duplicated
        is_empty is_first_distinct is_last_distinct is_sorted is_unique item kurtosis last
        len limit lower_bound max mean median min mode n_unique nan_max nan_min null_count
        pct_change peak_max peak_min product rank reverse rle rle_id shift shuffle skew
        sort std sum tail unique unique_counts upper_bound value_counts var
        """,
    ),
    **_plain(U, "all any arg_true"),
    **_windows(),
    "append": lambda: X.append(Y),
    "approx_quantile": lambda: X.approx_quantile(0.5),
    "bin_quantiles": lambda: X.bin_quantiles([0.5], labels=["a", "b"]),
    "bin_ranks": lambda: X.bin_ranks(2, labels=["a", "b"]),
    "bottom_k": lambda: X.bottom_k(1),
    "bottom_k_by": lambda: X.bottom_k_by("y", k=1),
    "cumulative_eval": lambda: X.cumulative_eval(E.sum()),
    "dot": lambda: X.dot(Y),
    "ewm_mean": lambda: X.ewm_mean(com=1),
    "ewm_mean_by": lambda: X.ewm_mean_by("t", half_life="1d"),
    "ewm_std": lambda: X.ewm_std(com=1),
    "ewm_sum": lambda: X.ewm_sum(com=1),
    "ewm_sum_by": lambda: X.ewm_sum_by("t", half_life="1d"),
    "ewm_var": lambda: X.ewm_var(com=1),
    "extend_constant": lambda: X.extend_constant(1, 1),
    "gather": lambda: X.gather([1]),
    "gather_every": lambda: X.gather_every(2),
    "get": lambda: X.get(0),
    "index_of": lambda: X.index_of(Y),
    "inspect": X.inspect,
    "interpolate_by": lambda: X.interpolate_by("y"),
    "map_batches": lambda: X.map_batches(_sums, return_dtype=pl.Int64),
    "max_by": lambda: X.max_by("y"),
    "min_by": lambda: X.min_by("y"),
    "over": lambda: X.over("k"),
    "pipe_with_dtype": lambda: X.pipe_with_dtype(lambda expr, _dtype: expr.sum()),
    "qcut": lambda: X.qcut(2),
    "quantile": lambda: X.quantile(0.5),
    "reshape": lambda: X.reshape((1, -1)),
    "sample": lambda: X.sample(1),
    "slice": lambda: X.slice(0, 1),
    "sort_by": lambda: X.sort_by("y"),
    "top_k": lambda: X.top_k(1),
    "top_k_by": lambda: X.top_k_by("y", k=1),
    "cat.to": lambda: X.cast(pl.UInt32).cat.to(pl.Categorical),
    "list.sample": lambda: L.list.sample(1, seed=1),
    "str.join": lambda: S.str.join(","),
    "pl.arange": lambda: pl.arange(0, X),
    "pl.arg_sort_by": lambda: pl.arg_sort_by("x"),
    "pl.arg_where": lambda: pl.arg_where(U),
    "pl.corr": lambda: pl.corr("x", "y"),
    "pl.cov": lambda: pl.cov("x", "y"),
    "pl.cum_fold": lambda: pl.cum_fold(pl.lit(0), lambda a, b: a + b, ["x", "y"]),
    "pl.cum_reduce": lambda: pl.cum_reduce(lambda a, b: a + b, ["x", "y"]),
    "pl.cum_sum_horizontal": lambda: pl.cum_sum_horizontal("x", "y"),
    "pl.date_range": lambda: pl.date_range(T2.min(), T2.max()),
    "pl.datetime_range": lambda: pl.datetime_range(T.min(), T.max()),
    "pl.fold": lambda: pl.fold(pl.lit(0), lambda a, b: a + b.sum(), ["x", "y"]),
    "pl.int_range": lambda: pl.int_range(0, X),
    "pl.len": pl.len,
    "pl.linear_space": lambda: pl.linear_space(0, X, 3),
    "pl.map_batches": lambda: pl.map_batches(["x"], lambda s: s[0].cum_sum()),
    "pl.map_groups": lambda: pl.map_groups(["x"], lambda s: s[0].sum(), pl.Int64),
    "pl.ones": lambda: pl.ones(2),
    "pl.pipe_with_dtype": lambda: pl.pipe_with_dtype([X], lambda pairs: pairs[0][0]),
    "pl.quantile": lambda: pl.quantile("x", 0.5),
    "pl.reduce": lambda: pl.reduce(lambda a, b: a + b.sum(), ["x", "y"]),
    "pl.repeat": lambda: pl.repeat(1, X),
    "pl.rolling_corr": lambda: pl.rolling_corr("x", "y", window_size=2),
    "pl.rolling_cov": lambda: pl.rolling_cov("x", "y", window_size=2),
    "pl.row_index": pl.row_index,
    "pl.time_range": lambda: pl.time_range(TM.min(), TM.max()),
    "pl.zeros": lambda: pl.zeros(2),
    **{f"pl.{name}": partial(getattr(pl, name), "x") for name in _AGGREGATES.split()},
}
"""What looks at other rows, or might."""

WHOLE: dict[str, Made] = {
    "is_in": lambda: X.is_in(Y),
    "is_in, computed": lambda: X.is_in(pl.when(Y > 1).then(Y)),
    "is_in, structs": lambda: pl.struct(X).is_in(pl.struct(Y)),
    "is_in, imploded": lambda: X.is_in(Y.implode()),
    "replace": lambda: S.replace(P, D),
    "replace, of values": lambda: S.replace(P, pl.lit("z")),
    "replace, by values": lambda: S.replace(["x"], P.first()),
    "replace_strict": lambda: S.replace_strict(P, D, default="?"),
    "contains_any": lambda: S.str.contains_any(P),
    "arr.count_matches": lambda: A.arr.count_matches(X),
    "list.count_matches": lambda: L.list.count_matches(X),
    "str.replace": lambda: S.str.replace(P, "z"),
    "extract_many": lambda: S.str.extract_many(P),
    "find_many": lambda: S.str.find_many(P),
    "replace_many": lambda: S.str.replace_many(P, D),
    "replace_many, by a value": lambda: S.str.replace_many(P, pl.lit("!")),
    "search_sorted": lambda: Y.search_sorted(X),
    "str.to_date without a format": S.str.to_date,
    "str.to_datetime without a format": S.str.to_datetime,
    "str.to_time without a format": S.str.to_time,
    "fill_null with a strategy": lambda: X.fill_null(strategy="max"),
    "a field": lambda: ST.struct.with_fields(pl.field("v").cum_sum()),
    "items by chance": lambda: L.list.eval(E.shuffle()),
    "a function of items": lambda: L.list.eval(E.map_batches(_sums)),
    "a Series": lambda: X + pl.Series([1, 2, 3]),
}
"""Methods of one row, with arguments or in places in which they look at many."""

_NAMES = """
    arr bin cat deserialize dt ext ext.to list map meta name str struct pl.col pl.dtype_of
    pl.element pl.field pl.self_dtype pl.struct_with_fields
"""
NO_EXPRESSION = frozenset(_NAMES.split())
"""Namespaces, what makes none of these by itself, and types of one's own."""


def methods() -> set[str]:
    """Return every method that makes an expression, by namespace."""
    spaces = [name for name in pl.Expr._accessors if name != "meta"]
    found = {name for name in dir(pl.Expr) if not name.startswith("_")}
    for space in spaces:
        inner = dir(type(getattr(X, space)))
        found |= {f"{space}.{name}" for name in inner if not name.startswith("_")}
    return found | {f"pl.{name}" for name in dir(pl) if _makes_expression(name)}


def _makes_expression(name: str) -> bool:
    """Whether a function of the module gives an expression."""
    function = getattr(pl, name)
    if name.startswith("_") or not inspect.isfunction(function):
        return False
    made = str(inspect.signature(function).return_annotation)
    return any(word in made for word in ("Expr", "When"))
