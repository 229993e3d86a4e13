"""Millstream: stateful batch and stream dataflows as resident tasks on Spark.

>>> import millstream as ms
>>> flow = ms.Flow("squares")
>>> squares = flow.from_iterable(range(4)).map(lambda i: i * i).collect()
>>> _ = flow.run(on="local")
>>> squares.result()
[0, 1, 4, 9]
"""

from __future__ import annotations

import typing as _typing

from millstream import windows
from millstream.api.flow import Flow
from millstream.api.functions import StatefulFunction
from millstream.api.grouped import GroupedStream
from millstream.api.handles import ResultHandle
from millstream.api.keyed import KeyedStream
from millstream.api.state_handles import ListState, MapState, ValueState
from millstream.api.stream import Stream
from millstream.api.windows import WindowedStream
from millstream.config import BufferPolicy, Config, adaptive, fixed
from millstream.connectors.base import (
    Later,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    Split,
)
from millstream.errors import (
    JobCancelledError,
    LaunchError,
    LostChangesWarning,
    MillstreamError,
    OperationalError,
    OperatorError,
    UnboundedStateWarning,
    UsageError,
    WorkerLostError,
)
from millstream.launch.job import Job
from millstream.launch.metrics import StageMetrics, TimeMetrics, WorkerMetrics
from millstream.operators.dead_letters import DeadLetter
from millstream.operators.rows.timers import Timer, Timers
from millstream.plan.aggregate import Aggregate
from millstream.plan.iteration import RoundState
from millstream.plan.time import LateRow
from millstream.protocol.metrics import OutputMetrics, RoundMetrics, TaskMetrics
from millstream.state.operator_state import OperatorState

# Stored values refer to it by this path.
from millstream.state.stored_types import stored_object as _stored  # noqa: F401

if _typing.TYPE_CHECKING:
    from millstream.api.frame import Frame, WindowFrame
    from millstream.api.frame_aggregates import (
        approx_n_unique,
        approx_quantile,
        frame_aggregate,
    )
    from millstream.api.frame_grouped import GroupedFrame
    from millstream.api.frame_windows import WindowedFrame

__all__ = [
    "Aggregate",
    "BufferPolicy",
    "Config",
    "DeadLetter",
    "Flow",
    "Frame",
    "GroupedFrame",
    "GroupedStream",
    "Job",
    "JobCancelledError",
    "KeyedStream",
    "LateRow",
    "Later",
    "LaunchError",
    "ListState",
    "LostChangesWarning",
    "MapState",
    "MillstreamError",
    "OperationalError",
    "OperatorError",
    "OperatorState",
    "OutputMetrics",
    "ResultHandle",
    "RoundMetrics",
    "RoundState",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "Split",
    "StageMetrics",
    "StatefulFunction",
    "Stream",
    "TaskMetrics",
    "TimeMetrics",
    "Timer",
    "Timers",
    "UnboundedStateWarning",
    "UsageError",
    "ValueState",
    "WindowFrame",
    "WindowedFrame",
    "WindowedStream",
    "WorkerLostError",
    "WorkerMetrics",
    "adaptive",
    "approx_n_unique",
    "approx_quantile",
    "fixed",
    "frame_aggregate",
    "windows",
]

__version__ = "0.1.0"

_WITH_POLARS = {
    "Frame": "millstream.api.frame",
    "GroupedFrame": "millstream.api.frame_grouped",
    "WindowFrame": "millstream.api.frame",
    "WindowedFrame": "millstream.api.frame_windows",
    "approx_n_unique": "millstream.api.frame_aggregates",
    "approx_quantile": "millstream.api.frame_aggregates",
    "frame_aggregate": "millstream.api.frame_aggregates",
}
"""Names whose modules import Polars, which a flow of rows need not wait for."""


def __dir__() -> list[str]:
    """List what is public, also what is imported when it is first asked for."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> _typing.Any:
    """Import what needs Polars when it is first asked for."""
    if name not in _WITH_POLARS:
        msg = f"module 'millstream' has no attribute {name!r}"
        raise AttributeError(msg)
    import importlib  # noqa: PLC0415 - see above

    return getattr(importlib.import_module(_WITH_POLARS[name]), name)
