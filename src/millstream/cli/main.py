"""The commands that people type, their options and their help.

Each command reads its options here and leaves the work to its module, which is imported
when the command runs: ``millstream --help`` waits for nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

_JOB = click.argument("job", type=click.Path(path_type=Path), metavar="JOB.PY")
_ARGUMENTS = click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]")
_DIRECTORY = click.argument("directory", metavar="DIR")
_TRACEBACK = click.option(
    "--traceback", "shows_traceback", is_flag=True, envvar="MILLSTREAM_TRACEBACK",
    help="Show where on the worker a function raised (or set MILLSTREAM_TRACEBACK=1).",
)  # fmt: skip
_VERBOSE = click.option(
    "-v", "--verbose", "verbosity", count=True,
    help="Log what the job decides, -vv also details (or set MILLSTREAM_LOG=info, debug).",
)  # fmt: skip
_COUNT = click.IntRange(min=1)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88}
)
def commands() -> None:
    """Run stateful dataflows in plain Python, on Spark or without it.

    A job file is a Python program that builds a flow:

    \b
        import millstream as ms
        flow = ms.Flow("word-count")
        lines = flow.read_text("books/*.txt")
        counts = lines.flat_map(str.split).group_by(str.lower).count().collect()

    \b
    Try it in this process, look at its plan, then run it on a cluster:
        millstream run job.py --on local
        millstream explain job.py
        millstream run job.py --master spark://host:7077 --workers 8
    """  # noqa: D301 - click reads \b as: do not wrap


@commands.command()
@_JOB
@click.option(
    "--on", type=click.Choice(["spark", "local", "processes"]),
    help="Where workers live: as Spark tasks (the default), in this process, or in "
    "processes of this machine; the last two need no Java.",
)  # fmt: skip
@click.option("--master", metavar="URL", help="Spark master; local[*] by default.")
@click.option("--workers", type=_COUNT, metavar="N", help="Number of workers.")
@click.option(
    "--state", metavar="DIR",
    help="Keep snapshots there, survive lost workers, and go on from the newest one.",
)  # fmt: skip
@click.option(
    "--resume-from", metavar="DIR",
    help="Begin with a savepoint, or with the newest snapshot of another job.",
)  # fmt: skip
@click.option(
    "--repeat-output", is_flag=True,
    help="Begin with --resume-from although a sink has committed rows after it.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="Change a setting, also one that the program sets; may be repeated.",
)  # fmt: skip
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE.TOML",
    help="Read options from a file; those of the command line win.",
)  # fmt: skip
@click.option(
    "--insecure", is_flag=True,
    help="Do without protection of the job's secret and of its connections.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Show no progress on the terminal.")
@_VERBOSE
@_TRACEBACK
@_ARGUMENTS
def run(
    job: Path,
    *,
    on: str | None,
    master: str | None,
    workers: int | None,
    state: str | None,
    resume_from: str | None,
    settings: tuple[str, ...],
    config: Path | None,
    arguments: tuple[str, ...],
    repeat_output: bool,
    insecure: bool,
    quiet: bool,
    verbosity: int,
    shows_traceback: bool,
) -> int:
    """Run a job file.

    The file runs as it would under Python, and the options say how the flows that it
    starts are run; what flow.run(...) says itself comes before --on, --master and
    --workers.  A file that only defines a flow has it run, and its results printed.

    \b
    Examples:
        millstream run job.py --on local
        millstream run job.py --workers 4 --set buffer='adaptive(64, 5ms)'
        millstream run job.py --master spark://host:7077 -- --input books/
        millstream run job.py --state snapshots/ --set snapshot_every_ms=1000

    \b
    A file for --config:
        [run]
        workers = 8
        [set]
        buffer = "fixed(1024)"
        [[hosts]]
        address = "localhost"
        cores = 4

    Exit codes: 0 success, 1 the job failed, 2 the command or the flow is wrong,
    130 interrupted.
    """  # noqa: D301 - click reads \b as: do not wrap

    def command() -> int:
        from millstream.cli import configfile, running  # noqa: PLC0415 - see above

        set_here = configfile.parse_settings(settings)
        line = configfile.Asked(on, master, workers, state, resume_from, set_here)
        file = configfile.read_config(config) if config else configfile.Asked()
        options = configfile.launch_options(
            line, file, insecure=insecure, repeat_output=repeat_output
        )
        _show_log(verbosity)
        running.run_file(job, arguments, options, is_quiet=quiet)
        return 0

    return _guarded(command, shows_traceback=shows_traceback)


@commands.command()
@_JOB
@click.option("--workers", type=_COUNT, metavar="N", default=2, show_default=True)
@click.option("--mermaid", is_flag=True, help="Draw a Mermaid diagram of the stages.")
@_TRACEBACK
@_ARGUMENTS
def explain(
    job: Path,
    *,
    workers: int,
    arguments: tuple[str, ...],
    mermaid: bool,
    shows_traceback: bool,
) -> int:
    """Show the plan of a job file without running its flow.

    Prints the operators with the lines that made them, the stages they are fused into,
    how rows travel between stages, and the tasks on each worker.

    \b
    Examples:
        millstream explain job.py
        millstream explain job.py --workers 8
        millstream explain job.py --mermaid > plan.mmd
    """  # noqa: D301 - click reads \b as: do not wrap

    def command() -> int:
        from millstream.cli.jobfile import taken_flow  # noqa: PLC0415 - see above
        from millstream.observe.printable import printable  # noqa: PLC0415

        form: Any = "mermaid" if mermaid else "text"
        with taken_flow(job, arguments) as flow:
            text = flow.explain(workers=workers, form=form)
            click.echo(printable(text, keep="\n"), nl=False)
        return 0

    return _guarded(command, shows_traceback=shows_traceback)


@commands.command()
@_JOB
@click.option(
    "--seeds", type=_COUNT, metavar="N", default=1000, show_default=True,
    help="Number of seeds to try; each gives another order of events.",
)  # fmt: skip
@click.option(
    "--seed", type=int, metavar="S", help="Try this seed alone, to see a failure again."
)
@click.option(
    "--workers", type=_COUNT, metavar="N",
    help="Number of workers; each seed draws its own by default.",
)  # fmt: skip
@click.option(
    "--faults", type=click.Choice(["all", "benign", "none"]), default="all",
    show_default=True,
    help="What goes wrong: crashes and partitions too, only delays, or nothing.",
)  # fmt: skip
@click.option(
    "--snapshots", is_flag=True,
    help="Let the job take snapshots: then it must survive what goes wrong.",
)  # fmt: skip
@_VERBOSE
@_TRACEBACK
@_ARGUMENTS
def simulate(
    job: Path,
    *,
    seeds: int,
    seed: int | None,
    workers: int | None,
    faults: str,
    snapshots: bool,
    arguments: tuple[str, ...],
    verbosity: int,
    shows_traceback: bool,
) -> int:
    """Run the flow of a job file many times in a simulator that makes things go wrong.

    The real workers and the real coordinator run in this process on simulated time and
    a simulated network.  A seed decides everything, so a failure can be repeated.

    \b
    Examples:
        millstream simulate job.py
        millstream simulate job.py --seeds 50 --workers 5
        millstream simulate job.py --snapshots
        millstream simulate job.py --seed 417

    Exit codes: 0 every seed kept its promises, 1 one did not, 2 misuse.
    """  # noqa: D301 - click reads \b as: do not wrap

    def command() -> int:
        from millstream.cli.simulating import simulate_file  # noqa: PLC0415 - see above

        _show_log(verbosity)
        return simulate_file(
            job, arguments, seeds=seeds, seed=seed, workers=workers, faults=faults,
            snapshots=snapshots,
        )  # fmt: skip

    return _guarded(command, shows_traceback=shows_traceback)


@commands.command()
@_DIRECTORY
@click.option(
    "--savepoint", metavar="DIR",
    help="Copy the last snapshot to a new directory, for --resume-from.",
)  # fmt: skip
@click.option(
    "--drain", is_flag=True,
    help="Let the job read its input to the end first; for input that has one.",
)  # fmt: skip
@_TRACEBACK
def stop(
    directory: str, *, savepoint: str | None, drain: bool, shows_traceback: bool
) -> int:
    """Stop the job that runs on a state directory, behind one more snapshot.

    Nothing is committed after that snapshot: the job can go on from it, in the same
    directory or elsewhere with --resume-from, and writes no row twice.  Asks the driver
    through the directory, which takes who may read its key.

    \b
    Examples:
        millstream stop state/
        millstream stop state/ --savepoint backups/monday
        millstream run job.py --workers 8 --resume-from backups/monday --state state2/

    Exit codes: 0 the job has stopped, 1 it has not, 2 misuse or no job.
    """  # noqa: D301 - click reads \b as: do not wrap

    def command() -> int:
        from millstream.cli.stopping import stop_job  # noqa: PLC0415 - see above

        click.echo(stop_job(directory, savepoint, drain=drain))
        return 0

    return _guarded(command, shows_traceback=shows_traceback)


@commands.group()
def snapshots() -> None:
    """Look at the snapshots in a state directory, a path or a URL.

    \b
    Examples:
        millstream snapshots list state/
        millstream snapshots show state/ --epoch 41
        millstream snapshots verify s3://bucket/job
    """  # noqa: D301 - click reads \b as: do not wrap


@snapshots.command("list")
@_DIRECTORY
@_TRACEBACK
def list_snapshots(directory: str, *, shows_traceback: bool) -> int:
    """List the epochs, newest first, with their sizes and how long they took.

    Reads the manifests and not the files that they list.
    """

    def command() -> int:
        from millstream.cli.snapshots import listed, opened  # noqa: PLC0415 - see above

        click.echo("\n".join(listed(opened(directory))))
        return 0

    return _guarded(command, shows_traceback=shows_traceback)


@snapshots.command("show")
@_DIRECTORY
@click.option(
    "--epoch", type=_COUNT, metavar="N", help="Another one than the newest usable."
)
@_TRACEBACK
def show_snapshot(directory: str, *, epoch: int | None, shows_traceback: bool) -> int:
    """Show what an epoch holds, and the files and bytes of each operator."""

    def command() -> int:
        from millstream.cli.snapshots import described, opened  # noqa: PLC0415 - see above

        click.echo("\n".join(described(opened(directory), epoch)))
        return 0

    return _guarded(command, shows_traceback=shows_traceback)


@snapshots.command("verify")
@_DIRECTORY
@_TRACEBACK
def verify_snapshots(directory: str, *, shows_traceback: bool) -> int:
    """Read every file of every epoch and print a sentence for each damage.

    Exit codes: 0 everything is whole, 1 something is damaged, 2 misuse.
    """

    def command() -> int:
        from millstream.cli.snapshots import opened, verified  # noqa: PLC0415 - see above

        store = opened(directory)
        problems = verified(store)
        for problem in problems:
            click.echo(problem)
        if not problems:
            click.echo(f"{len(store.manifests())} epochs are whole")
        return 1 if problems else 0

    return _guarded(command, shows_traceback=shows_traceback)


@commands.command()
def version() -> int:
    """Show the versions of Millstream, Python and what they stand on.

    \b
    Example:
        millstream version
    """  # noqa: D301 - click reads \b as: do not wrap
    from millstream.cli.versions import versions  # noqa: PLC0415 - see above

    for name, text in versions().items():
        click.echo(f"{name} {text}")
    return 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Carry out one command and exit with its code."""
    try:
        code = commands.main(arguments, prog_name="millstream", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    sys.exit(code)


def _show_log(verbosity: int) -> None:
    from millstream.observe.log import show_log, show_log_as_asked  # noqa: PLC0415

    if verbosity:
        show_log("info" if verbosity == 1 else "debug")
    else:
        show_log_as_asked()


def _guarded(command: Callable[[], int], *, shows_traceback: bool) -> int:
    from millstream.cli.failures import exit_code  # noqa: PLC0415 - see above

    return exit_code(command, shows_traceback=shows_traceback)
