"""Spark DataFrames in and out of a flow.

Imported only when a flow uses them: pyspark takes a while to load.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.api.building import located, user_location
from millstream.api.frame import Frame
from millstream.api.handles import ResultHandle
from millstream.connectors.parquet import ParquetSink
from millstream.connectors.spark import (
    SparkSource,
    check_for_spark,
    read_back,
    written_frame,
    written_stream,
)
from millstream.errors import UsageError
from millstream.plan.nodes import Read, Write

if TYPE_CHECKING:
    from millstream.api.flow import Flow

__all__ = ["frame_from_spark", "spark_from_frame"]


def frame_from_spark(
    flow: Flow, verb: str, frame: Any, staging: str | None, name: str | None
) -> Frame:
    """Carry out `Flow.from_spark` and `Flow.from_spark_stream`."""
    is_stream = verb == "from_spark_stream"
    if getattr(frame, "isStreaming", None) is not is_stream:
        other = "from_spark" if is_stream else "from_spark_stream"
        msg = (
            f"`{verb}` at {user_location()} takes a {'streaming' if is_stream else 'bounded'}"
            f" Spark DataFrame, got {type(frame).__name__}; for the other kind use `{other}`"
        )
        raise UsageError(msg)
    write = written_stream(frame) if is_stream else written_frame(frame)
    with located(verb):
        source = SparkSource(write, frame.schema, staging)
    node = flow.add(verb, Read(source), (), name=name, makes_frames=True)
    return Frame(flow, node, source.schema)


def spark_from_frame(
    frame: Frame, flow: Flow, node_id: int, path: str | None, name: str | None
) -> ResultHandle[Any]:
    """Carry out `Frame.to_spark`."""
    with located("to_spark"):
        check_for_spark(frame.schema)
        directory = path or tempfile.mkdtemp(prefix="millstream-spark-")
        rows = str(Path(directory) / "rows")
        sink = ParquetSink(rows, frame.schema, overwrite=True)
    node = flow.add("to_spark", Write(sink), (node_id,), name=name)
    handle: ResultHandle[Any] = ResultHandle(
        flow, node.id, node.name, lambda _rows: read_back(rows)
    )
    if path is None:
        weakref.finalize(flow, shutil.rmtree, directory, ignore_errors=True)
    flow.remember(handle)
    return handle
