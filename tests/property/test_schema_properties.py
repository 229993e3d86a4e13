"""A schema is given, or inferred once, and then holds for every row of every file.

Method: Hypothesis draws files whose values agree on no type, and cuts them into splits of
a few bytes.  The schema must be that of the first file alone.  Whatever the number of
workers, the good rows must be those that parse on their own with that schema, with its
types, and each other row must be among the bad ones, once, with its file and line.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from tests.support.examples import examples

import millstream as ms
from millstream.connectors import frame_files
from millstream.connectors.bad_rows import MalformedError
from millstream.connectors.csv import CsvDialect, CsvFormat
from millstream.connectors.jsonl import JsonFormat

WORKERS = (1, 2, 3, 7)
UNLIMITED = 10**9

CSV_VALUES = ["", "1", "-2.5", "x", '"a,b"', "true", "2024-01-02", '""', "1e400", "é"]
JSON_VALUES = ["null", "1", "-2.5", '"x"', "true", "[1]", '{"a":1}', '"2024-01-02"']

CSV_LINES = st.lists(st.sampled_from(CSV_VALUES), min_size=1, max_size=3).map(",".join)
JSON_LINES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(JSON_VALUES)),
    max_size=3,
    unique_by=lambda pair: pair[0],
).map(lambda pairs: "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}")

CSV_SCHEMAS = st.sampled_from(
    [{"a": pl.Int64, "b": pl.String}, {"a": pl.Float64, "b": pl.Date}]
)
JSON_SCHEMAS = st.sampled_from(
    [{"a": pl.Int64, "b": pl.String}, {"a": pl.List(pl.Int64), "c": pl.Float64}]
)

Schema = dict[str, Any] | None


def frame_of(flow: ms.Flow, kind: str, paths: Any, schema: Schema) -> Any:
    return getattr(flow, f"read_{kind}")(paths, schema=schema, max_bad_rows=UNLIMITED)


def expected(files: list[Path], line_format: Any, head: int) -> tuple[Any, Any]:
    """Parse every line on its own; return the good rows, and where the bad ones are."""
    good: Counter[str] = Counter()
    bad: Counter[tuple[str, int]] = Counter()
    for file in files:
        lines = file.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines[head:], head + 1):
            if not line.strip() and len(line_format.schema) > 1:
                continue
            try:
                good.update(map(repr, line_format.parse(line).rows()))
            except MalformedError:
                bad[str(file), number] += 1
    return good, bad


def schema_of_first(kind: str, files: list[Path], schema: Schema) -> pl.Schema:
    """Return the schema of the first file; one that has none must ask for it."""
    try:
        found: pl.Schema = frame_of(ms.Flow("first"), kind, files[0], schema).schema
    except ms.UsageError as error:
        assert str(error).endswith("; pass schema=")  # noqa: PT017 - then skipped
        reject()
    return found


def check(kind: str, files: list[Path], schema: Schema) -> None:
    first = schema_of_first(kind, files, schema)
    line_format: Any = (
        CsvFormat(first, CsvDialect()) if kind == "csv" else JsonFormat(first)
    )
    wanted = expected(files, line_format, head=int(kind == "csv"))
    for workers in WORKERS:
        flow = ms.Flow("schema")
        frame = frame_of(flow, kind, files, schema)
        rows, aside = frame.collect(), frame.bad_rows.collect()
        flow.run(on="local", workers=workers)
        places = aside.result().select("file", "line").rows()

        assert frame.schema == rows.result().schema == first
        assert (Counter(map(repr, rows.result().rows())), Counter(places)) == wanted


def written(folder: str, contents: list[str]) -> list[Path]:
    files = [Path(folder, f"{number}.x") for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
    return files


def files_of(lines: st.SearchStrategy[str]) -> st.SearchStrategy[list[list[str]]]:
    return st.lists(st.lists(lines, min_size=1, max_size=8), min_size=1, max_size=3)


@examples(0.15)
@given(files=files_of(CSV_LINES), schema=st.none() | CSV_SCHEMAS)
def test_csv(files: list[list[str]], schema: Schema) -> None:
    """Fields of another type, and rows of another width, are malformed everywhere."""
    contents = ["\n".join(["a,b", *lines, ""]) for lines in files]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_files, "_SPLIT_BYTES_MIN", 8)
        check("csv", written(folder, contents), schema)


@examples(0.15)
@given(files=files_of(JSON_LINES), schema=st.none() | JSON_SCHEMAS)
def test_json_lines(files: list[list[str]], schema: Schema) -> None:
    """Values of another type are malformed; keys that are not in the schema are not."""
    contents = ["\n".join([*lines, ""]) for lines in files]
    contents[0] = '{"a":1}\n' + contents[0]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_files, "_SPLIT_BYTES_MIN", 8)
        check("jsonl", written(folder, contents), schema)
