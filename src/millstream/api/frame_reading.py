"""What the verbs of `Flow` that read files as frames do.

Imported only when a flow uses frames: Polars takes a while to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.api.building import checked_count, located
from millstream.api.frame import Frame
from millstream.connectors.bad_rows import (
    BAD_SCHEMA,
    BadRowBudget,
    bad_part,
    good_part,
)
from millstream.connectors.csv import CsvDialect, csv_source
from millstream.connectors.jsonl import jsonl_source
from millstream.connectors.parquet import ParquetSource
from millstream.connectors.text_frame import lines_source
from millstream.errors import UsageError
from millstream.plan.frames import MapFrames
from millstream.plan.nodes import Read, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import polars as pl

    from millstream.api.graph import Graph
    from millstream.connectors.frame_files import LineFrames
    from millstream.connectors.paths import StrPath
    from millstream.plan.logical import Node

    Paths = StrPath | Iterable[StrPath]

__all__ = ["FileFrame", "read_csv", "read_jsonl", "read_lines", "read_parquet"]


class FileFrame(Frame):
    """The good rows of files; `bad_rows` has the others."""

    def __init__(
        self, graph: Graph, node: Node, schema: pl.Schema, bad: Frame | None = None
    ) -> None:
        super().__init__(graph, node, schema)
        self._bad = bad

    @property
    def bad_rows(self) -> Frame:
        """The malformed rows, each once, whichever workers read the files.

        Columns are ``file``, ``line`` (its number, from 1; null beyond the first 4 GiB
        of a file), ``offset`` (of the first byte), ``text`` (up to 64 KiB) and
        ``cause``.  Only where the verb that reads was given a ``max_bad_rows`` above 0.
        """
        if self._bad is None:
            msg = (
                f"{self!r} keeps no bad rows, since the first one fails the job; pass "
                "max_bad_rows= to the verb that reads"
            )
            raise UsageError(msg)
        return self._bad


def read_csv(
    graph: Graph,
    paths: Paths,
    *,
    schema: Mapping[str, Any] | None,
    header: bool,
    separator: str,
    quote: str | None,
    null_values: Iterable[str],
    multiline: bool,
    max_bad_rows: int,
    name: str | None,
) -> FileFrame:
    """Carry out `Flow.read_csv`."""

    def make() -> LineFrames:
        dialect = CsvDialect(separator, quote, header, tuple(null_values), multiline)
        return csv_source(
            paths, schema=schema, dialect=dialect, max_bad_rows=max_bad_rows
        )

    return _read_lines(graph, "read_csv", make, max_bad_rows, name)


def read_jsonl(
    graph: Graph,
    paths: Paths,
    *,
    schema: Mapping[str, Any] | None,
    max_bad_rows: int,
    name: str | None,
) -> FileFrame:
    """Carry out `Flow.read_jsonl`."""
    make = lambda: jsonl_source(paths, schema=schema, max_bad_rows=max_bad_rows)  # noqa: E731 - tried
    return _read_lines(graph, "read_jsonl", make, max_bad_rows, name)


def read_lines(
    graph: Graph, paths: Paths, *, max_bad_rows: int, name: str | None
) -> FileFrame:
    """Carry out `Flow.read_lines`."""
    make = lambda: lines_source(paths, max_bad_rows=max_bad_rows)  # noqa: E731 - tried
    return _read_lines(graph, "read_lines", make, max_bad_rows, name)


def read_parquet(
    graph: Graph, paths: Paths, *, columns: Iterable[str] | None, name: str | None
) -> FileFrame:
    """Carry out `Flow.read_parquet`."""
    with located("read_parquet"):
        source = ParquetSource(paths, columns=columns)
    node = graph.add("read_parquet", Read(source), (), name=name, makes_frames=True)
    return FileFrame(graph, node, source.schema)


def _read_lines(
    graph: Graph,
    verb: str,
    make: Callable[[], LineFrames],
    max_bad_rows: int,
    name: str | None,
) -> FileFrame:
    checked_count(verb, "max_bad_rows", max_bad_rows, least=0)
    with located(verb):
        source = make()
    node = graph.add(verb, Read(source), (), name=name, makes_frames=True)
    if max_bad_rows == 0:
        return FileFrame(graph, node, source.schema)
    good = _part(graph, node, "good", MapFrames(good_part, "the same"))
    bad = _part(graph, node, "bad", MapFrames(bad_part, "nothing"))
    budget = Write(BadRowBudget(max_bad_rows))
    graph.add(verb, budget, (bad.id,), name=f"{node.name}.budget", width=1)
    return FileFrame(graph, good, source.schema, Frame(graph, bad, BAD_SCHEMA))


def _part(graph: Graph, read: Node, what: str, spec: MapFrames) -> Node:
    return graph.add(
        read.verb,
        spec,
        (read.id,),
        name=f"{read.name}.{what}",
        makes_frames=True,
    )
