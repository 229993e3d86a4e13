"""The commands as people type them: what they print, and their exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

import pytest

import millstream
from millstream.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

DEFINED = """
    import millstream as ms
    flow = ms.Flow("squares")
    rows = flow.from_iterable(range(3)).map(lambda i: i * i).collect()
"""
STARTED = f"""{DEFINED}
    flow.run()
    print(sum(rows.result()))
"""
RAISING = """
    import millstream as ms
    flow = ms.Flow("broken")
    rows = flow.from_iterable([2, 1, 0]).map(lambda i: 1 / i).collect()
    flow.run()
"""


class Ended(NamedTuple):
    """What a command left behind."""

    code: object
    out: str
    err: str


class Shell:
    """Types commands about one job file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.job = folder / "job.py"
        self._capsys = capsys

    def write(self, text: str) -> None:
        self.job.write_text(dedent(text))

    def type(self, command: str, *options: str) -> Ended:
        with pytest.raises(SystemExit) as caught:
            main([command, str(self.job), *options])
        return Ended(caught.value.code, *self._capsys.readouterr())


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


def test_run_obeys_the_command_line_where_the_file_says_nothing(shell: Shell) -> None:
    """`flow.run()` in the file becomes a run on `local`; piped, nothing else shows."""
    shell.write(STARTED)

    assert shell.type("run", "--on", "local") == (0, "5\n", "")


def test_run_lets_the_file_decide_where_it_says_something(shell: Shell) -> None:
    """The workers of `flow.run(workers=...)` come before those of the command line."""
    shell.write(
        STARTED.replace("flow.run()", "print(flow.run(workers=2).worker_pids())")
    )

    ended = shell.type("run", "--on", "local", "--workers", "3")

    assert ended.out.startswith(f"[{os.getpid()}, {os.getpid()}]\n")


def test_setting_of_the_command_line_comes_before_that_of_the_file(
    shell: Shell,
) -> None:
    """`--set` is for trying things without editing the file."""
    shell.write(STARTED.replace("flow.run()", "flow.run(source_batch_rows='many')"))

    assert shell.type("run", "--on", "local").code == 2
    ended = shell.type("run", "--on", "local", "--set", "source_batch_rows=1")
    assert ended == (0, "5\n", "")


def test_run_starts_the_flow_of_a_file_that_only_defines_one(shell: Shell) -> None:
    """The results are printed, one row per line."""
    shell.write(DEFINED)

    assert shell.type("run", "--on", "local") == (0, "0\n1\n4\n", "")


def test_run_names_results_when_there_are_several(shell: Shell) -> None:
    """A single value is one line; a row of a class of the file can be shown too."""
    shell.write(
        """
        import dataclasses, millstream as ms
        @dataclasses.dataclass
        class Pair:
            number: int
        flow = ms.Flow("several")
        numbers = flow.from_iterable([1, 2])
        pairs = numbers.map(Pair).collect()
        total = numbers.sum()
        """
    )

    ended = shell.type("run", "--on", "local")

    assert ended == (0, "collect:\nPair(number=1)\nPair(number=2)\nsum:\n3\n", "")


def test_run_waits_for_a_job_that_the_file_left_running(
    shell: Shell, tmp_path: Path
) -> None:
    """`flow.start()` at the end of a file is not cut off."""
    shell.write(
        DEFINED
        + f"    rows2 = flow.from_iterable('ab').write_text({str(tmp_path / 'out')!r})\n    flow.start()\n"
    )

    assert shell.type("run", "--on", "local").code == 0
    written = "".join(p.read_text() for p in (tmp_path / "out").glob("*[!_]*"))
    assert sorted(written.split()) == ["a", "b"]


def test_function_that_raises_is_one_sentence(shell: Shell) -> None:
    """Operator, line, error and record, and no traceback of ours."""
    shell.write(RAISING)

    ended = shell.type("run", "--on", "local")

    assert ended.code == 1
    assert ended.err.startswith("error: map at job.py:4 raised ZeroDivisionError")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("way", ["option", "environment"])
def test_traceback_of_the_worker_is_shown_when_asked_for(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It ends in the user's function."""
    shell.write(RAISING)
    if way == "environment":
        monkeypatch.setenv("MILLSTREAM_TRACEBACK", "1")

    options = ["--traceback"] if way == "option" else []
    ended = shell.type("run", "--on", "local", *options)

    assert ended.code == 1
    assert "Traceback (most recent call last)" in ended.err
    assert ended.err.endswith("ZeroDivisionError: division by zero\n")


def test_error_of_the_file_itself_is_pythons_traceback(shell: Shell) -> None:
    """From the user's first line on: how the command got there is of no interest."""
    shell.write("def oops():\n    raise KeyError('spoon')\n\noops()\n")

    ended = shell.type("run", "--on", "local")

    assert ended.code == 1
    assert ended.err.startswith(
        f'Traceback (most recent call last):\n  File "{shell.job}", line 4, in <module>'
    )
    assert ended.err.endswith("KeyError: 'spoon'\n")
    assert "jobfile.py" not in ended.err


@pytest.mark.parametrize("command", ["run", "explain"])
def test_file_that_is_not_python_is_shown_where_it_breaks(
    shell: Shell, command: str
) -> None:
    """As Python shows it, without a traceback."""
    shell.write("flow = = 3\n")

    ended = shell.type(command)

    assert ended.code == 1
    assert ended.err.startswith(f'  File "{shell.job}", line 1\n')
    assert ended.err.endswith("SyntaxError: invalid syntax\n")


def test_mistake_in_the_flow_is_misuse(shell: Shell) -> None:
    """Nothing has run, so it is not a failure of the job."""
    shell.write("import millstream as ms\nms.Flow('f').from_iterable(3)\n")

    ended = shell.type("run", "--on", "local")

    assert ended.code == 2
    assert ended.err.startswith("error: `from_iterable` at job.py:2: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--on", "moon"], "'moon' is not one of"),
        (["--workers", "0"], "0 is not in the range"),
        (["--on", "local", "--set", "bufer=fixed(1)"], "did you mean 'buffer'"),
        (["--on", "local", "--master", "local[2]"], "a master is for Spark"),
        (["--config", "absent.toml"], "there is no configuration file 'absent.toml'"),
    ],
)
def test_wrong_command_line_is_misuse(
    shell: Shell, options: list[str], message: str
) -> None:
    """The file is not run at all."""
    shell.write("raise AssertionError('the file was run')")

    ended = shell.type("run", *options)

    assert ended.code == 2
    assert message in ended.err


def test_missing_file_is_misuse(shell: Shell) -> None:
    """One sentence, as for every other mistake."""
    ended = shell.type("run", "--on", "local")

    assert ended == (2, "", f"error: there is no job file {str(shell.job)!r}\n")


def test_file_chooses_its_own_exit_code(shell: Shell) -> None:
    """`sys.exit` in the file is the exit of the command."""
    shell.write("import sys\nsys.exit(7)\n")

    assert shell.type("run", "--on", "local").code == 7


def test_config_file_is_read(shell: Shell, tmp_path: Path) -> None:
    """Its hosts say how wide to run."""
    shell.write(STARTED.replace("flow.run()", "print(len(flow.run().worker_pids()))"))
    config = tmp_path / "run.toml"
    config.write_text('[run]\non="local"\n[[hosts]]\naddress="localhost"\ncores=3\n')

    assert shell.type("run", "--config", str(config)) == (0, "3\n5\n", "")


def test_explain_prints_the_plan_and_runs_nothing(shell: Shell) -> None:
    """For as many workers as asked for."""
    shell.write(STARTED)

    ended = shell.type("explain", "--workers", "3")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("flow 'squares'\n\nlogical plan\n")
    assert "tasks on 3 workers" in ended.out


def test_explain_draws_a_diagram(shell: Shell) -> None:
    """Only the diagram, so that it can be piped into a file."""
    shell.write(STARTED)

    assert shell.type("explain", "--mermaid").out.startswith("flowchart LR\n")


def test_simulate_reports_on_every_seed(shell: Shell) -> None:
    """Rows may be of a class that only the file knows."""
    shell.write(
        """
        import dataclasses, millstream as ms
        @dataclasses.dataclass(frozen=True)
        class Pair:
            number: int
        flow = ms.Flow("pairs")
        pairs = flow.from_iterable(range(9)).map(Pair).collect()
        flow.run()
        """
    )

    ended = shell.type("simulate", "--seeds", "5", "--faults", "benign")

    assert (ended.code, ended.err) == (0, "")
    assert "5 succeeded" in ended.out


def test_simulate_fails_when_a_seed_does(shell: Shell) -> None:
    """A flow whose rows depend on the order of things is not what it seems."""
    shell.write(
        """
        import millstream as ms
        flow = ms.Flow("order")
        numbers = flow.from_iterable(range(50)).map(abs).key_by(lambda i: 0)
        mixed = numbers.scan(lambda total, i: 2 * total + i).collect()
        flow.run()
        """
    )

    ended = shell.type("simulate", "--seeds", "30", "--workers", "3")

    assert ended.code == 1
    assert "millstream simulate" in ended.out


def test_version_names_what_a_bug_report_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line each, also for what is not installed."""
    with pytest.raises(SystemExit) as caught:
        main(["version"])

    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert caught.value.code == 0
    assert names == ["millstream", "python", "pyspark", "polars", "pyarrow"]


@pytest.mark.parametrize("command", ["run", "explain", "simulate", "version"])
def test_help_has_an_example_of_the_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a line of its own, ready to be copied."""
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])

    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert caught.value.code == 0
    assert any(line.startswith(f"millstream {command}") for line in lines)


def test_start_of_the_command_line_imports_nothing_heavy() -> None:
    """A second of imports would be paid by every `--help` and every run on `local`."""
    check = (
        "import sys, millstream.cli.main, millstream.cli.running\n"
        "print({'pyspark', 'polars', 'pyarrow', 'pandas', 'rich', 'numpy'} & {*sys.modules})"
    )

    out = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    ).stdout

    assert out == "set()\n"


def test_interrupt_ends_the_job_with_130(shell: Shell) -> None:
    """Ctrl-C on an endless job: one line, no traceback."""
    shell.write(
        """
        import itertools, millstream as ms
        flow = ms.Flow("endless")
        numbers = flow.from_iterable(itertools.count)
        numbers.inspect(lambda i: print("go", flush=True) if i == 0 else None).for_each(str)
        flow.run()
        """
    )
    command = [
        sys.executable,
        "-m",
        "millstream",
        "run",
        str(shell.job),
        "--on",
        "local",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)

    assert (process.returncode, err) == (130, "error: interrupted\n")


def test_module_is_the_command() -> None:
    """`python -m millstream` works where the script is not on the path."""
    command = [sys.executable, "-m", "millstream", "version"]

    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert out.startswith(f"millstream {millstream.__version__}\n")
