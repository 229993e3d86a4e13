"""Job files as the main program, and the flow in them."""

from __future__ import annotations

import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from millstream.cli.jobfile import JobFile, taken_flow
from millstream.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, text: str) -> Path:
    path = folder / "job.py"
    path.write_text("import millstream as ms\n" + dedent(text))
    return path


def test_file_runs_as_python_would_run_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Name, arguments and neighbors are those of a main program."""
    (tmp_path / "neighbor.py").write_text("HOUSE = 12\n")
    path = written(
        tmp_path,
        """
        import sys, neighbor
        print(__name__, __file__, sys.argv[1:], neighbor.HOUSE)
        """,
    )
    file = JobFile(path)

    with file.as_main(["a", "--b"]):
        file.execute()

    assert capsys.readouterr().out == f"__main__ {path} ['a', '--b'] 12\n"


def test_interpreter_is_as_before_afterwards(tmp_path: Path) -> None:
    """Commands can follow each other in one process."""
    before = sys.modules["__main__"], sys.argv, list(sys.path)
    file = JobFile(written(tmp_path, "1 / 0"))

    with pytest.raises(ZeroDivisionError), file.as_main([]):
        file.execute()

    assert (sys.modules["__main__"], sys.argv, sys.path) == before


def test_flow_is_taken_before_it_starts(tmp_path: Path) -> None:
    """Nothing after `run` happens, not even the reading of results."""
    path = written(
        tmp_path,
        """
        flow = ms.Flow("taken")
        rows = flow.from_iterable([1]).collect()
        flow.run()
        raise AssertionError("the flow was run")
        """,
    )

    with taken_flow(path, []) as flow:
        assert flow.name == "taken"


def test_flow_that_is_not_started_is_found(tmp_path: Path) -> None:
    """A second name for the same flow is not a second flow."""
    path = written(tmp_path, "flow = ms.Flow('found')\nalias = flow\n")

    with taken_flow(path, []) as flow:
        assert flow.name == "found"


def test_what_the_file_prints_leaves_standard_output_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan can be piped into a file."""
    path = written(tmp_path, "flow = ms.Flow('f')\nprint('hello')")

    with taken_flow(path, []):
        print("plan")  # noqa: T201 - as a program would

    assert capsys.readouterr() == ("plan\n", "hello\n")


def test_file_that_exits_in_peace_still_shows_its_flow(tmp_path: Path) -> None:
    """`sys.exit(0)` at the end of a program is no failure."""
    path = written(tmp_path, "flow = ms.Flow('f')\nraise SystemExit(0)")

    with taken_flow(path, []) as flow:
        assert flow.name == "f"


def test_file_that_exits_with_a_code_keeps_it(tmp_path: Path) -> None:
    """The program refused its arguments, say."""
    path = written(tmp_path, "raise SystemExit(7)")

    with pytest.raises(SystemExit) as caught, taken_flow(path, []):
        pass

    assert caught.value.code == 7


def test_file_without_a_flow_is_refused(tmp_path: Path) -> None:
    """The message says both ways out."""
    path = written(tmp_path, "x = 1")
    message = "job.py starts no flow and defines none"

    with pytest.raises(UsageError, match=message), taken_flow(path, []):
        pass


def test_one_of_several_flows_is_not_chosen(tmp_path: Path) -> None:
    """The message names them."""
    path = written(tmp_path, "a = ms.Flow('one')\nb = ms.Flow('two')")

    message = r"defines 2 of them \(a, b\)"

    with pytest.raises(UsageError, match=message), taken_flow(path, []):
        pass


def test_missing_file_is_named_with_a_near_one(tmp_path: Path) -> None:
    """A typing mistake is answered with the right name."""
    written(tmp_path, "")

    with pytest.raises(
        UsageError, match=r"no job file .*jobb.py'; did you mean .*job.py"
    ):
        JobFile(tmp_path / "jobb.py")
    with pytest.raises(UsageError, match="is a directory"):
        JobFile(tmp_path)
