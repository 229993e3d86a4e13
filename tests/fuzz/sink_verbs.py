"""Sinks, and what must be found in them."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import strategies as st
from tests.fuzz.row_verbs import VALUE
from tests.fuzz.verbs import FRAME, NAN, ROWS, VERBS, Kind, one_nan, verb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fuzz.programs import Program

__all__ = ["directories_shared", "found_in", "problem_of", "text_record"]

ROWS_SINK: Kind = "rows sink"
FRAME_SINK: Kind = "frame sink"
DIRECTORIES = tuple("abcdef")
_BARE_NAN = re.compile(r"\bnan\b(?!')")
"""The number, and not the text of one, which a frame has as a key."""


def text_record(line: str) -> Any:
    """Return the record that was written as a line of text."""
    return ast.literal_eval(_BARE_NAN.sub(repr(NAN), line))


directory = st.sampled_from(DIRECTORIES)
FILE_SINKS: dict[str, Callable[[Path], list[Any]]] = {
    "write_text": lambda path: [
        text_record(line) for line in path.read_text().splitlines()
    ],
    "write_jsonl": lambda path: [
        tuple(json.loads(line).values()) for line in path.read_text().splitlines()
    ],
    "write_parquet": lambda path: pl.read_parquet(path).rows(),
}


def directories_shared(program: Program) -> bool:
    """Return whether two sinks of a program are to write to one directory."""
    named = [s.arguments[0] for s in program.steps if s.verb in FILE_SINKS]
    return len(set(named)) < len(named)


def found_in(verb_name: str, place: Path) -> list[Any]:
    """Return the rows that lie in the directory of a file sink."""
    parts = sorted(place.glob("part*")) if place.exists() else []
    return [row for part in parts for row in FILE_SINKS[verb_name](part)]


def problem_of(verb_name: str, found: Any, expected: Any, *arguments: Any) -> str:
    """Say what is wrong with what a sink got, or nothing."""
    if isinstance(expected, int):
        return "" if found == expected else f"{found}, expected {expected}"
    rows, due = _counted(found), _counted(expected)
    if verb_name == "limited":
        most = min(arguments[0], due.total())
        strange = rows - due
        is_right = not strange and rows.total() == most
        return "" if is_right else f"{rows.total()} rows of {most}, strange {strange}"
    if rows != due:
        return f"{_listed(rows - due)} too many, {_listed(due - rows)} missing"
    if verb_name != "sorted":
        return ""
    values = [row[1] for row in found]
    return "" if values == sorted(values) else f"not in order: {values}"


def _counted(rows: Any) -> Counter[Any]:
    if isinstance(rows, pl.DataFrame):
        rows = rows.rows()
    return Counter(tuple(one_nan(value) for value in row) for row in rows)


def _listed(rows: Counter[Any]) -> str:
    shown = ", ".join(map(repr, list(rows.elements())[:5]))
    return f"{rows.total()} rows ({shown}{', ...' if rows.total() > 5 else ''})"


verb(
    "collect",
    [ROWS],
    ROWS_SINK,
    text=lambda name, rows: f"{rows}.collect(name={name!r})",
    means=lambda rows: rows,
)
verb(
    "count",
    [ROWS],
    ROWS_SINK,
    text=lambda name, rows: f"{rows}.count(name={name!r})",
    means=len,
)
verb(
    "sum",
    [ROWS],
    ROWS_SINK,
    text=lambda name, rows: f"{rows}.map({VALUE}, name='{name}.v').sum(name={name!r})",
    means=lambda rows: sum(r[1] for r in rows),
)
verb(
    "sorted",
    [ROWS],
    ROWS_SINK,
    text=lambda name, rows: (
        f"{rows}.sort_by({VALUE}, name='{name}.order').collect(name={name!r})"
    ),
    means=lambda rows: rows,
)
verb(
    "limited",
    [ROWS],
    ROWS_SINK,
    text=lambda name, rows, most: (
        f"{rows}.limit({most}, name='{name}.most').collect(name={name!r})"
    ),
    means=lambda rows, most: rows,
    arguments=(st.sampled_from([0, 1, 7, 100]),),
)
verb(
    "write_text",
    [ROWS],
    ROWS_SINK,
    text=lambda name, rows, place: (
        f"{rows}.map(repr, name='{name}.text')"
        f".write_text(out / {place!r}, name={name!r})"
    ),
    means=lambda rows, place: rows,
    arguments=(directory,),
)
verb(
    "write_jsonl",
    [ROWS],
    ROWS_SINK,
    text=lambda name, rows, place: (
        f"{rows}.map(lambda r: {{'k': repr(r[0]), 'v': r[1], 't': r[2]}}, "
        f"name='{name}.dict').write_jsonl(out / {place!r}, name={name!r})"
    ),
    means=lambda rows, place: [(repr(k), v, t) for k, v, t in rows],
    arguments=(directory,),
)
verb(
    "collect_frame",
    [FRAME],
    FRAME_SINK,
    text=lambda name, frame: f"{frame}.collect(name={name!r})",
    means=lambda frame: frame,
)
verb(
    "write_parquet",
    [FRAME],
    FRAME_SINK,
    text=lambda name, frame, place: (
        f"{frame}.write_parquet(out / {place!r}, name={name!r})"
    ),
    means=lambda frame, place: frame,
    arguments=(directory,),
)
assert all(VERBS[name].is_sink for name in FILE_SINKS)
