"""Whether the installed Polars is one whose expressions are understood here.

What an expression is, is read from the JSON that Polars writes of it: a format of its own,
which changes between versions.  A version that was not tried is refused before it could be
misunderstood, and the shapes that are relied upon are compared once per process.
"""

from __future__ import annotations

import json
from functools import cache

import polars as pl

from millstream.errors import UsageError

__all__ = ["TRIED", "check_polars"]

TRIED = ("2.1",)
"""The minor versions of Polars that the tests have seen; pyproject.toml has the same."""

_X, _LITERAL = {"Column": "x"}, {"Literal": {"Dyn": {"Int": 1}}}
_COL = pl.col("x")
_SHAPES = (
    (pl.len, "Len"),
    (_COL.sum, {"Agg": {"Sum": _X}}),
    (
        _COL.count,
        {"Agg": {"Count": {"input": _X, "include_nulls": False}}},
    ),
    (_COL.max, {"Agg": {"Max": {"input": _X, "propagate_nans": False}}}),
    (_COL.std, {"Agg": {"Std": [_X, 1]}}),
    (
        _COL.implode,
        {"Agg": {"Implode": {"input": _X, "maintain_order": True}}},
    ),
    (
        lambda: _COL.top_k(1),
        {
            "Function": {
                "input": [_X, _LITERAL],
                "function": {"TopK": {"descending": False}},
            }
        },
    ),
    (
        lambda: _COL.is_in(_COL),
        {
            "Function": {
                "input": [_X, _X],
                "function": {"Boolean": {"IsIn": {"nulls_equal": False}}},
            }
        },
    ),
    (
        lambda: (_COL + 1).alias("y"),
        {"Alias": [{"BinaryExpr": {"left": _X, "op": "Plus", "right": _LITERAL}}, "y"]},
    ),
    (
        lambda: pl.when(_COL).then(_COL).otherwise(1),
        {"Ternary": {"predicate": _X, "truthy": _X, "falsy": _LITERAL}},
    ),
    (pl.all().name.keep, {"KeepName": {"Selector": "Wildcard"}}),
    (
        lambda: _COL.list.eval(pl.element()),
        {"Eval": {"expr": _X, "evaluation": "Element", "variant": "List"}},
    ),
    (
        lambda: _COL.str.split(" ").explode(),
        {
            "Explode": {
                "input": {
                    "Function": {
                        "input": [_X, {"Literal": {"Scalar": {"String": " "}}}],
                        "function": {"StringExpr": {"Split": False}},
                    }
                },
                "options": {"empty_as_null": False, "keep_nulls": True},
            }
        },
    ),
)


@cache
def check_polars() -> None:
    """Refuse a Polars whose expressions may be written in another way."""
    minor = ".".join(pl.__version__.split(".")[:2])
    if minor not in TRIED:
        msg = (
            f"Polars {pl.__version__} is installed, and frames were tried with "
            f"{' and '.join(TRIED)} only; install 'polars=={TRIED[-1]}.*'"
        )
        raise UsageError(msg)
    for make, expected in _SHAPES:
        expr = make()
        if json.loads(expr.meta.serialize(format="json")) != expected:
            msg = (
                f"Polars {pl.__version__} writes the expression {expr} in a way that is "
                f"not known here, so frames cannot be checked; install another patch of "
                f"'polars=={TRIED[-1]}.*' and report it"
            )
            raise UsageError(msg)
