"""Data frames of other libraries as those of Polars: pandas, Arrow, lazy ones.

None of them is imported here; whoever has one has imported its library.
"""

from __future__ import annotations

import sys
from typing import Any

import polars as pl

from millstream.errors import UsageError

__all__ = ["given_frame"]


def given_frame(frame: Any) -> pl.DataFrame:
    """Return the rows of a data frame, or refuse what is none.

    Examples
    --------
    >>> given_frame(pl.LazyFrame({"x": [1]})).rows()
    [(1,)]
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    try:
        made = _converted(frame)
    except UsageError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        msg = f"the {_kind(frame)} cannot be read: {lines[0]}; convert it to a pl.DataFrame"
        raise UsageError(msg) from error
    if made is None:
        msg = (
            "it takes a data frame of Polars, pandas or Arrow, got "
            f"{_kind(frame)}{_advice(frame)}"
        )
        raise UsageError(msg)
    return made


def _converted(frame: Any) -> pl.DataFrame | None:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        names = [name for name in frame.index.names if name is not None]
        if names:
            msg = (
                f"the pandas DataFrame has the index {', '.join(map(repr, names))}, and "
                "frames have columns only; call .reset_index() first"
            )
            raise UsageError(msg)
        made: pl.DataFrame = pl.from_pandas(frame)
        return made
    if arrow is not None and isinstance(frame, arrow.Table | arrow.RecordBatch):
        return pl.DataFrame(frame)
    return None


def _kind(frame: Any) -> str:
    kind = type(frame)
    top = kind.__module__.partition(".")[0]
    return kind.__name__ if top == "builtins" else f"{top} {kind.__name__}"


def _advice(frame: Any) -> str:
    if type(frame).__module__.startswith("pyspark."):
        return "; use .from_spark(...)"
    if isinstance(frame, dict | list | pl.Series):
        return "; make one by pl.DataFrame(...)"
    return ""
