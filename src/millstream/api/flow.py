"""A flow: the user's program, built verb by verb and then run.

The verbs that it begins with are in `api.sources`.
"""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from millstream.api.building import (
    checked_count,
    located,
    user_location,
)
from millstream.api.sources import SourceVerbs
from millstream.api.wrapping import WrappingGraph
from millstream.config import BufferPolicy, Config, configured, nanoseconds
from millstream.errors import UsageError
from millstream.launch.job import Job
from millstream.launch.options import (
    LaunchOptions,
    intercepted,
    merged_options,
    observed,
)
from millstream.plan.explain import explain_mermaid, explain_text
from millstream.plan.logical import LogicalPlan
from millstream.plan.nodes import DeadLetterLimit, DeadLetters
from millstream.plan.stages import plan_stages

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from millstream.api.handles import ResultHandle
    from millstream.api.stream import Stream
    from millstream.operators.dead_letters import DeadLetter

__all__ = ["Flow"]

T = TypeVar("T")


class Flow(SourceVerbs):
    """A dataflow program.

    Parameters
    ----------
    name
        What Spark's pages, messages and the log call it.
    buffer
        How output buffers are sent, for all streams that do not say otherwise:
        `fixed` or `adaptive`.

    Examples
    --------
    >>> import millstream as ms
    >>> flow = ms.Flow("word-count")
    >>> lines = flow.from_iterable(["to be or", "not to be"])
    >>> counts = lines.flat_map(str.split).group_by(str.lower).count().collect()
    >>> _ = flow.run(on="local")
    >>> sorted(counts.result())
    [('be', 2), ('not', 1), ('or', 1), ('to', 2)]
    """

    def __init__(self, name: str, *, buffer: BufferPolicy | None = None) -> None:
        given: object = name
        if not isinstance(given, str) or not given:
            msg = f"`Flow` at {user_location()} takes a name as text, got {name!r}"
            raise UsageError(msg)
        policy: object = buffer
        if policy is not None and not isinstance(policy, BufferPolicy):
            msg = (
                f"`Flow` at {user_location()} takes fixed(...) or adaptive(...) as "
                f"buffer, got {policy!r}"
            )
            raise UsageError(msg)
        self.name = name
        self.plan = LogicalPlan(name, location=user_location())
        self._buffer = buffer
        self._graph = WrappingGraph(self.plan)

    # Records that make a function raise

    def dead_letters(
        self, max_dead_letters: int, *, name: str | None = None
    ) -> Stream[DeadLetter]:
        """Go on without records that make a function raise; return them as a stream.

        It holds for all functions of one row, or of one batch, in the whole flow, but
        for those that follow from the dead letters themselves.  Each letter comes
        exactly once, as all rows do.  Without this verb the first such record fails
        the job.

        moves data: letters, to one task · state: a number · waits for the end: no

        Parameters
        ----------
        max_dead_letters
            The most letters that the job may have; one more fails it.
        name
            What messages and plans call it.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("dead_letters")
        >>> numbers = flow.from_iterable(["1", "two", "3"]).map(int).collect()
        >>> letters = flow.dead_letters(max_dead_letters=10).collect()
        >>> _ = flow.run(on="local")
        >>> numbers.result()
        [1, 3]
        >>> [(letter.operator, letter.record) for letter in letters.result()]
        [('map', 'two')]
        """
        checked_count("dead_letters", "max_dead_letters", max_dead_letters)
        before = [n for n in self.plan.nodes if isinstance(n.spec, DeadLetters)]
        if before:
            msg = (
                f"`dead_letters` at {user_location()} is there already, at "
                f"{before[0].location}; a flow has it once, so use that stream again"
            )
            raise UsageError(msg)
        add = self._graph.add
        node = add("dead_letters", DeadLetters(), (), name=name, width=1)
        budget = DeadLetterLimit(max_dead_letters)
        budget_name = f"{node.name}.budget"
        add("dead_letters", budget, (node.id,), name=budget_name, width=1)
        return self._graph.stream(node)

    # Running

    def start(
        self,
        *,
        on: Literal["spark", "local", "processes"] | None = None,
        spark: Any = None,
        master: str | None = None,
        workers: int | None = None,
        insecure: bool = False,
        state: str | os.PathLike[str] | None = None,
        snapshot_every: str | timedelta | None = None,
        resume_from: str | os.PathLike[str] | None = None,
        state_backend: Literal["memory", "rocksdb"] | None = None,
        state_key: bytes | Callable[[], bytes] | None = None,
        drop_state: bool = False,
        repeat_output: bool = False,
        **settings: Any,
    ) -> Job:
        """Start the flow and return at once.

        Parameters
        ----------
        on
            ``"spark"`` (the default), ``"local"`` (this process, no Java) or
            ``"processes"`` (plain processes on this machine, no Java).
        spark
            A `SparkSession` to run on; otherwise one is made.
        master
            Spark master for a session that is made here; ``local[*]`` by default.
        workers
            Number of workers; by default one per task slot of Spark, and one on
            ``"local"``.
        insecure
            Do without protection: Spark need not guard the job's secret, and the
            connections of the job are neither encrypted nor authenticated frame by
            frame, so whoever is on the way can read the rows and run code in the
            workers.  A warning is logged.
        state
            Directory or fsspec URL for snapshots, which all workers must reach.  With
            it the job survives lost workers and failing functions, and the same
            program started again with the same directory goes on where it was.
        snapshot_every
            Time between two snapshots; 5 s by default.
        resume_from
            A savepoint, or the state directory of another job, to begin with.
        state_backend
            Where state is kept while the job runs: ``"memory"`` (the default) or
            ``"rocksdb"`` for more than fits in memory.
        state_key
            The 32 bytes that prove snapshots, or a function that fetches them, called in
            the driver; else ``MILLSTREAM_STATE_KEY``, else a key that lies in `state`.
        drop_state
            Begin without the state of operators that the flow does not have any more.
        repeat_output
            Begin with `resume_from` although a sink has committed rows after it, which
            are then written a second time; for output that was removed by hand.
        settings
            Fields of `millstream.config.Config`.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("start")
        >>> total = flow.from_iterable([1, 2]).sum()
        >>> job = flow.start(on="local")
        >>> job.wait()
        True
        """
        return self._start(
            "start",
            LaunchOptions(
                on=on,
                spark=spark,
                master=master,
                workers=workers,
                insecure=insecure,
                state=_path(state),
                resume_from=_path(resume_from),
                state_backend=state_backend,
                state_key=state_key,
                drop_state=drop_state,
                repeat_output=repeat_output,
                settings=_with_interval(settings, snapshot_every),
            ),
        )

    def run(
        self,
        *,
        on: Literal["spark", "local", "processes"] | None = None,
        spark: Any = None,
        master: str | None = None,
        workers: int | None = None,
        insecure: bool = False,
        state: str | os.PathLike[str] | None = None,
        snapshot_every: str | timedelta | None = None,
        resume_from: str | os.PathLike[str] | None = None,
        state_backend: Literal["memory", "rocksdb"] | None = None,
        state_key: bytes | Callable[[], bytes] | None = None,
        drop_state: bool = False,
        repeat_output: bool = False,
        **settings: Any,
    ) -> Job:
        """Start the flow, wait for its end, and return the job; see `start`.

        ``MILLSTREAM_LOG=info`` logs what the job decides and how far it has come; the
        error of a job that failed carries it as `story`.

        Raises
        ------
        OperatorError
            If a user function raised.
        OperationalError
            If a worker was lost or could not be started.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("run")
        >>> total = flow.from_iterable(range(4)).sum()
        >>> flow.run(on="local", workers=2).status()
        'succeeded'
        >>> total.result()
        6
        """
        job = self._start(
            "run",
            LaunchOptions(
                on=on,
                spark=spark,
                master=master,
                workers=workers,
                insecure=insecure,
                state=_path(state),
                resume_from=_path(resume_from),
                state_backend=state_backend,
                state_key=state_key,
                drop_state=drop_state,
                repeat_output=repeat_output,
                settings=_with_interval(settings, snapshot_every),
            ),
        )
        job.wait()
        return job

    @property
    def last_job(self) -> Job:
        """The job of the last `start` or `run`, also of a `run` that raised.

        Its `story`, `metrics` and `recoveries` tell what happened.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("last")
        >>> flow.from_iterable([0]).for_each(lambda i: 1 // i)
        >>> try:
        ...     flow.run(on="local")
        ... except ms.OperatorError:
        ...     flow.last_job.status()
        'failed'
        """
        return self._graph.last_job

    @property
    def handles(self) -> tuple[ResultHandle[Any], ...]:
        """The results that sinks will give back, in the order of their making.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("handles")
        >>> numbers = flow.from_iterable([1, 2])
        >>> _ = numbers.collect(), numbers.count()
        >>> [handle.name for handle in flow.handles]
        ['collect', 'count']
        """
        return tuple(self._graph.handles)

    def explain(
        self, *, workers: int = 2, form: Literal["text", "mermaid"] = "text"
    ) -> str:
        """Return the logical plan, the stages and the tasks, as text or Mermaid.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("explain")
        >>> flow.from_iterable([1]).for_each(print)
        >>> print(flow.explain(form="mermaid"))
        flowchart LR
          subgraph stage0["stage 0 · 1 task"]
            n0["from_iterable"] --> n1["for_each"]
          end
        <BLANKLINE>
        """
        checked_count("explain", "workers", workers)
        if form not in ("text", "mermaid"):
            msg = (
                f"`explain` at {user_location()} takes 'text' or 'mermaid' as form, "
                f"got {form!r}"
            )
            raise UsageError(msg)
        self.plan.check()
        stages = plan_stages(self.plan, self.config({}))
        if form == "mermaid":
            return explain_mermaid(stages)
        return explain_text(self.plan, stages, workers)

    def __repr__(self) -> str:
        return f"<Flow {self.name!r} with {len(self.plan.nodes)} operators>"

    def config(self, settings: dict[str, Any]) -> Config:
        """Return the limits and defaults of a job with these settings."""
        config = configured(Config(), settings, inspect.signature(self.run).parameters)
        if self._buffer is not None and "buffer" not in settings:
            config = configured(config, {"buffer": self._buffer})
        return config

    def _start(self, verb: str, said: LaunchOptions) -> Job:
        if said.workers is not None:
            checked_count(verb, "workers", said.workers)
        with located(verb):
            options = merged_options(said)
            config = self.config(options.settings)
        self.plan.check()
        intercepted(self)
        with located(verb):
            job = self._graph.job = Job.start(self.plan, config, options)
        observed(job)
        return job


def _path(path: str | os.PathLike[str] | None) -> str | None:
    known: object = path
    if known is None or isinstance(known, str | os.PathLike):
        return None if path is None else os.fspath(path)
    msg = f"a state directory is a path or a URL, got {path!r}"
    raise UsageError(msg)


def _with_interval(
    settings: dict[str, Any], snapshot_every: str | timedelta | None
) -> dict[str, Any]:
    if snapshot_every is None:
        return settings
    interval_ms = max(1, nanoseconds(snapshot_every) // 1_000_000)
    return {**settings, "snapshot_every_ms": interval_ms}
