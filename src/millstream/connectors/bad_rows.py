"""Rows of a file that could not be read: where they are, and how many are too many.

A source that may skip bad rows emits them in the same frames as the good ones, marked in
one more column, `BAD_COLUMN`; two operators behind the source part them again.  So they
travel, and are counted in one place for the whole job, like all other rows.

Nothing here knows why a row is bad.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import polars as pl

from millstream.connectors.base import Sink, SinkWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BAD_COLUMN",
    "BAD_SCHEMA",
    "BadRow",
    "BadRowBudget",
    "MalformedError",
    "bad_part",
    "good_part",
    "marked",
    "too_many",
]

BAD_COLUMN = "millstream.bad_row"

BAD_SCHEMA = pl.Schema(
    {
        "file": pl.String,
        "line": pl.Int64,
        "offset": pl.Int64,
        "text": pl.String,
        "cause": pl.String,
    }
)

_SHOWN_MAX = 200
"""Characters of a row's text that a message shows."""

_MARK = pl.Struct(dict(BAD_SCHEMA))


class MalformedError(ValueError):
    """Some bytes are not rows of the schema; the message is the cause."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read.

    Attributes
    ----------
    file
        Path or URL.
    line
        Number of the row's first line in the file, from 1; None far into a huge file.
    offset
        The row's first byte in the file.
    text
        The row as it stands there, of a very long one the beginning.
    cause
        What is wrong with it.
    """

    file: str
    line: int | None
    offset: int
    text: str
    cause: str

    def __str__(self) -> str:
        """Return where the row is, what is wrong with it, and what it looks like."""
        at = f"byte {self.offset}"
        place = f"the line at {at}" if self.line is None else f"line {self.line} ({at})"
        text = self.text
        if len(text) > _SHOWN_MAX:
            text = f"{text[:_SHOWN_MAX]}…"
        return f"{place} of {self.file} is malformed ({self.cause}): {text!r}"


def marked(good: pl.DataFrame, bad: Sequence[BadRow]) -> pl.DataFrame:
    """Return good and bad rows as one frame with `BAD_COLUMN`."""
    frame = good.with_columns(pl.lit(None, dtype=_MARK).alias(BAD_COLUMN))
    if not bad:
        return frame
    marks = pl.DataFrame(
        {BAD_COLUMN: [asdict(row) for row in bad]}, schema={BAD_COLUMN: _MARK}
    )
    return pl.concat([frame, marks], how="diagonal")


def good_part(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that could be read."""
    if frame[BAD_COLUMN].null_count() < frame.height:
        frame = frame.filter(pl.col(BAD_COLUMN).is_null())
    return frame.drop(BAD_COLUMN)


def bad_part(frame: pl.DataFrame) -> pl.DataFrame:
    """Return where the rows are that could not be read, and why."""
    marks = frame[BAD_COLUMN].drop_nulls()
    return marks.struct.unnest() if len(marks) else pl.DataFrame(schema=BAD_SCHEMA)


def too_many(budget: int, row: BadRow) -> ValueError:
    """Return the error that ends a job with more bad rows than it may have."""
    if budget:
        msg = (
            f"there are more than max_bad_rows={budget} malformed rows; the last: {row}"
        )
    else:
        msg = f"{row}; correct it, or pass max_bad_rows= to skip such rows"
    return ValueError(msg)


class BadRowBudget(Sink[pl.DataFrame]):
    """Counts the bad rows of a whole job and fails when there are too many."""

    is_parallel = False

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def open(self, job: str, task: int) -> SinkWriter[pl.DataFrame]:  # noqa: ARG002
        """Return the writer that counts."""
        return _Counter(self._budget)


class _Counter(SinkWriter[pl.DataFrame]):
    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._count = 0

    def write(self, rows: pl.DataFrame) -> None:  # type: ignore[override]
        self._count += rows.height
        if self._count > self._budget:
            raise too_many(self._budget, BadRow(*rows.row(-1)))
