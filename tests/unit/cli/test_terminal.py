"""The status line, and progress on a real terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

from millstream.cli.terminal import StatusLine

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CLEAR = "\r\x1b[K"
SLOW_JOB = """
import itertools, threading
import millstream as ms
pause = lambda i: threading.Event().wait(0.04) or i
flow = ms.Flow("slow")
rows = flow.from_iterable(range(20)).map(pause).count()
flow.run()
print("counted", rows.result())
"""


def test_line_is_replaced_and_removed() -> None:
    """A line that was removed is not removed again."""
    stream = io.StringIO()
    line = StatusLine(stream)

    line.draw("one")
    line.draw("two")
    line.clear()
    line.clear()

    assert stream.getvalue() == f"{CLEAR}one{CLEAR}two{CLEAR}"


def test_long_line_is_cut_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps could not be redrawn."""
    monkeypatch.setenv("COLUMNS", "10")
    stream = io.StringIO()

    StatusLine(stream).draw("0123456789")

    assert stream.getvalue() == f"{CLEAR}01234567…"


def test_line_makes_way_for_what_the_program_prints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The output of the program stands on lines of its own."""
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    line = StatusLine(screen)

    with line.beside():
        line.draw("busy")
        print("result")  # noqa: T201 - as a program would
    print("after")  # noqa: T201 - as a program would

    assert screen.getvalue() == f"{CLEAR}busy{CLEAR}result\nafter\n"


def on_a_terminal(job: Path, *options: str) -> str:
    """Run a job with a terminal as its standard error and return what it shows."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "millstream", "run", str(job), "--on", "local"]
    with os.fdopen(ours, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [*command, *options], stderr=theirs, stdout=subprocess.DEVNULL
        )
        os.close(theirs)
        shown = b""
        try:
            while part := screen.read(4096):
                shown += part
        except OSError:  # how Linux tells that the other end of a terminal is closed
            pass
        assert process.wait(timeout=30) == 0
    return shown.decode()


def test_terminal_shows_progress_and_a_summary(tmp_path: Path) -> None:
    """One line while the job runs, and one that stays."""
    job = tmp_path / "job.py"
    job.write_text(SLOW_JOB)

    shown = on_a_terminal(job)

    assert f"{CLEAR}slow · " in shown
    assert "back-pressure" in shown
    assert "slow · succeeded · 20 rows" in shown.splitlines()[-1]


def test_quiet_shows_nothing_on_a_terminal(tmp_path: Path) -> None:
    """`--quiet` is for people who know what they run."""
    job = tmp_path / "job.py"
    job.write_text(SLOW_JOB)

    assert on_a_terminal(job, "--quiet") == ""
