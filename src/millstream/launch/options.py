"""How a flow is to be started: what the program says, else what the command line says.

``millstream run`` sets defaults for the flows that a script starts and watches their
jobs, and ``millstream explain`` and ``millstream simulate`` take the flow away before it
starts.  All go through the context variables here.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from millstream.errors import UsageError
from millstream.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from millstream.launch.job import Job

__all__ = [
    "LaunchOptions",
    "ManualTime",
    "default_options",
    "intercept",
    "intercepted",
    "merged_options",
    "observe_jobs",
    "observed",
]

_LAUNCHERS = ("spark", "local", "processes")


class ManualTime(Clock, Protocol):
    """Time that passes only when somebody says so."""

    def advance(self, duration: timedelta) -> None:
        """Let time pass."""
        ...


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Where and how wide to run; None means that nothing was said."""

    on: str | None = None
    spark: SparkSession | None = None
    master: str | None = field(default=None, repr=False)
    workers: int | None = None
    insecure: bool = False
    state: str | None = field(default=None, repr=False)
    resume_from: str | None = field(default=None, repr=False)
    state_backend: Literal["memory", "rocksdb"] | None = None
    state_key: bytes | Callable[[], bytes] | None = field(default=None, repr=False)
    drop_state: bool = False
    repeat_output: bool = False
    settings: dict[str, object] = field(default_factory=dict)
    #: A clock that is set by hand, for tests; only on ``local``.
    clock: ManualTime | None = None
    #: Task slots that must stay free beside the workers; from the plan, not the user.
    spare_slots: int = 0


_defaults: ContextVar[LaunchOptions | None] = ContextVar(
    "millstream_options", default=None
)
_interceptor: ContextVar[Callable[[Any], None] | None] = ContextVar(
    "millstream_interceptor", default=None
)
_observer: ContextVar[Callable[[Job], None] | None] = ContextVar(
    "millstream_observer", default=None
)


def merged_options(said: LaunchOptions) -> LaunchOptions:
    """Fill in from the defaults what was not said, and check the result."""
    default = _defaults.get() or LaunchOptions()
    merged = replace(
        said,
        on=said.on or default.on or ("spark" if said.spark or said.master else None),
        spark=said.spark,
        master=said.master or default.master,
        workers=said.workers or default.workers,
        insecure=said.insecure or default.insecure,
        state=said.state or default.state,
        resume_from=said.resume_from or default.resume_from,
        state_backend=said.state_backend or default.state_backend,
        drop_state=said.drop_state or default.drop_state,
        repeat_output=said.repeat_output or default.repeat_output,
        settings={**said.settings, **default.settings},
        clock=said.clock or default.clock,
    )
    on = merged.on or "spark"
    if on not in _LAUNCHERS:
        msg = f"a flow runs on one of {', '.join(_LAUNCHERS)}, got {on!r}"
        raise UsageError(msg)
    if merged.clock is not None and on != "local":
        msg = f"time is set by hand only where a flow runs on 'local', not on {on!r}"
        raise UsageError(msg)
    workers: object = merged.workers
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        msg = f"a flow needs at least 1 worker, got workers={workers!r}"
        raise UsageError(msg)
    if merged.state_backend not in (None, "memory", "rocksdb"):
        msg = (
            f"state is kept in 'memory' or in 'rocksdb', got "
            f"state_backend={merged.state_backend!r}"
        )
        raise UsageError(msg)
    return replace(merged, on=on)


@contextmanager
def default_options(options: LaunchOptions) -> Iterator[None]:
    """Use `options` for every flow that is started inside and says nothing else."""
    token = _defaults.set(options)
    try:
        yield
    finally:
        _defaults.reset(token)


@contextmanager
def intercept(take: Callable[[Any], None]) -> Iterator[None]:
    """Hand every flow that is started inside to `take` first, which may raise."""
    token = _interceptor.set(take)
    try:
        yield
    finally:
        _interceptor.reset(token)


def intercepted(flow: object) -> None:
    """Hand the flow to whoever waits for it."""
    take = _interceptor.get()
    if take is not None:
        take(flow)


@contextmanager
def observe_jobs(see: Callable[[Job], None]) -> Iterator[None]:
    """Show every job that is started inside to `see`, once it has been started."""
    token = _observer.set(see)
    try:
        yield
    finally:
        _observer.reset(token)


def observed(job: Job) -> None:
    """Show the job to whoever watches."""
    see = _observer.get()
    if see is not None:
        see(job)
