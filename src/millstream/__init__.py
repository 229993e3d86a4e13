"""Millstream: stateful batch and stream dataflows as resident tasks on Spark.

>>> import millstream as ms
>>> flow = ms.Flow("squares")
>>> squares = flow.from_iterable(range(4)).map(lambda i: i * i).collect()
>>> _ = flow.run(on="local")
>>> squares.result()
[0, 1, 4, 9]
"""

from __future__ import annotations

from millstream.api.flow import Flow
from millstream.api.functions import ListState, MapState, StatefulFunction, ValueState
from millstream.api.handles import ResultHandle
from millstream.api.keyed import GroupedStream, KeyedStream
from millstream.api.stream import Stream
from millstream.config import BufferPolicy, Config, adaptive, fixed
from millstream.connectors.base import Sink, SinkWriter, Source, SourceReader, Split
from millstream.errors import (
    JobCancelledError,
    LaunchError,
    MillstreamError,
    OperationalError,
    OperatorError,
    UsageError,
    WorkerLostError,
)
from millstream.launch.job import Job, StageMetrics
from millstream.plan.aggregate import Aggregate

__all__ = [
    "Aggregate",
    "BufferPolicy",
    "Config",
    "Flow",
    "GroupedStream",
    "Job",
    "JobCancelledError",
    "KeyedStream",
    "LaunchError",
    "ListState",
    "MapState",
    "MillstreamError",
    "OperationalError",
    "OperatorError",
    "ResultHandle",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "Split",
    "StageMetrics",
    "StatefulFunction",
    "Stream",
    "UsageError",
    "ValueState",
    "WorkerLostError",
    "adaptive",
    "fixed",
]

__version__ = "0.1.0"
