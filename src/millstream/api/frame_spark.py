"""Spark DataFrames in and out of a flow.

Imported only when a flow uses them: pyspark takes a while to load.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Any

from millstream.api.building import located, user_location
from millstream.api.handles import ResultHandle
from millstream.config import nanoseconds
from millstream.connectors.parquet import ParquetSink
from millstream.connectors.spark import (
    SparkSource,
    check_for_spark,
    polars_schema,
    read_back,
    started_stream,
    written_frame,
    written_stream,
)
from millstream.connectors.spark_plans import inputs_of
from millstream.connectors.spark_stream import SparkStreamSource
from millstream.errors import UsageError
from millstream.plan.nodes import Read, Write

if TYPE_CHECKING:
    from datetime import timedelta

    from millstream.api.frame import Frame
    from millstream.api.graph import Graph

__all__ = ["frame_from_spark", "frame_from_spark_stream", "spark_from_frame"]


def frame_from_spark(
    graph: Graph, frame: Any, staging: str | None, name: str | None
) -> Frame:
    """Carry out `Flow.from_spark`."""
    verb = "from_spark"
    _check_kind(verb, frame, is_streaming=False)
    with located(verb):
        write, inputs = written_frame(frame), inputs_of(frame)
        source = SparkSource(write, frame.schema, staging, inputs)
    return _added(graph, verb, source, name)


def frame_from_spark_stream(
    graph: Graph,
    frame: Any,
    trigger: str | timedelta | None,
    staging: str | None,
    name: str | None,
) -> Frame:
    """Carry out `Flow.from_spark_stream`."""
    verb = "from_spark_stream"
    _check_kind(verb, frame, is_streaming=True)
    with located(verb):
        inputs = inputs_of(frame)
        if trigger is None:
            write = written_stream(frame)
            staged = SparkSource(write, frame.schema, staging, inputs)
            return _added(graph, verb, staged, name)
        start = started_stream(frame, nanoseconds(trigger) // 1_000_000, graph.name)
        schema = polars_schema(frame.schema)
        source = SparkStreamSource(start, schema, staging, inputs)
    return _added(graph, verb, source, name)


def _check_kind(verb: str, frame: Any, *, is_streaming: bool) -> None:
    if getattr(frame, "isStreaming", None) is not is_streaming:
        wanted, other = (
            ("streaming", "from_spark")
            if is_streaming
            else ("bounded", "from_spark_stream")
        )
        msg = (
            f"`{verb}` at {user_location()} takes a {wanted} Spark DataFrame, got "
            f"{type(frame).__name__}; for the other kind use `{other}`"
        )
        raise UsageError(msg)


def _added(
    graph: Graph, verb: str, source: SparkSource | SparkStreamSource, name: str | None
) -> Frame:
    node = graph.add(verb, Read(source), (), name=name, makes_frames=True)
    return graph.frame(node, source.schema)


def spark_from_frame(
    frame: Frame, graph: Graph, node_id: int, path: str | None, name: str | None
) -> ResultHandle[Any]:
    """Carry out `Frame.to_spark`."""
    with located("to_spark"):
        check_for_spark(frame.schema)
        directory = path or tempfile.mkdtemp(prefix="millstream-spark-")
        rows = f"{directory.rstrip('/')}/rows"
        sink = ParquetSink(rows, frame.schema, overwrite=True)
    node = graph.add("to_spark", Write(sink), (node_id,), name=name)
    handle: ResultHandle[Any] = ResultHandle(
        graph, node.id, node.name, lambda _rows: read_back(rows, frame.schema)
    )
    if path is None:
        weakref.finalize(graph, shutil.rmtree, directory, ignore_errors=True)
    graph.remember(handle)
    return handle
