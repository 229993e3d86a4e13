"""What ``millstream run`` does once its options are known."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from millstream.cli.jobfile import JobFile
from millstream.cli.terminal import StatusLine
from millstream.cli.watch import JobWatch
from millstream.launch.options import default_options, intercept, observe_jobs
from millstream.observe.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from millstream.api.flow import Flow
    from millstream.launch.job import Job
    from millstream.launch.options import LaunchOptions

__all__ = ["run_file"]


def run_file(
    path: Path, arguments: Sequence[str], options: LaunchOptions, *, is_quiet: bool
) -> None:
    """Run a job file; if it starts no flow, run the one it defines."""
    file = JobFile(path)
    line = None if is_quiet or not sys.stderr.isatty() else StatusLine(sys.stderr)
    watch = JobWatch(line)
    started: list[Flow] = []

    def note(flow: Flow) -> None:
        started.append(flow)
        if line is not None:
            line.draw(f"{flow.name} · starting")

    def see(job: Job) -> None:
        watch.see(job)
        if job.was_complete and not is_quiet:
            print(  # noqa: T201 - what the command is for
                f"{job.name} was complete in epoch {job.epoch}; nothing is run",
                file=sys.stderr,
            )

    with ExitStack() as stack:
        stack.callback(watch.close)
        if line is not None:
            stack.enter_context(line.beside())
        stack.enter_context(file.as_main(arguments))
        stack.enter_context(default_options(options))
        stack.enter_context(observe_jobs(see))
        stack.enter_context(intercept(note))
        file.execute()
        if not started:
            _run_and_print(file.only_flow())
        watch.wait()


def _run_and_print(flow: Flow) -> None:
    flow.run()
    for handle in flow.handles:
        if len(flow.handles) > 1:
            print(f"{printable(handle.name)}:")  # noqa: T201 - what the command is for
        for text in _shown(handle.result()):
            print(text)  # noqa: T201 - what the command is for


def _shown(result: Any) -> Iterator[str]:
    """Return a result as lines: one per row, or one for a single value."""
    if isinstance(result, list | set | frozenset):
        yield from (str(row) for row in result)
    elif isinstance(result, dict):
        yield from (f"{key}: {value}" for key, value in result.items())
    else:
        yield str(result)
