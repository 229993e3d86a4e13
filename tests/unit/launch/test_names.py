"""Hostile names of flows, sources and sinks: short files, and nothing on the screen."""

from __future__ import annotations

import io
import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.cli import main as command_line
from millstream.cli.snapshots import described, listed, opened
from millstream.cli.terminal import StatusLine
from millstream.connectors.output import part_name
from millstream.launch.names import job_prefix
from millstream.observe.log import show_log
from millstream.observe.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "clean\x1b[2J\x1b]0;title\x07\nERROR forged\r\0\u202eback\x9b"
COMMANDS = ("\x1b", "\x07", "\r", "\0", "\u202e", "\x9b")


def check_harmless(text: str, lines: int) -> None:
    assert not [letter for letter in COMMANDS if letter in text]
    assert len(text.splitlines()) == lines
    assert r"\x1b[2J" in text


@given(st.text(max_size=40))
def test_what_is_printed_is_printable(text: str) -> None:
    """And as it was, if nothing in it is a command."""
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()


def test_line_ends_stay_where_they_are_meant() -> None:
    """A traceback has many lines."""
    assert printable("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


def test_a_hostile_name_commands_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manifest of somebody else's is shown by the commands for snapshots."""
    flow = ms.Flow(HOSTILE)
    flow.from_iterable(range(3), name=f"in {HOSTILE}"[:30]).for_each(id)
    flow.run(on="local", state=tmp_path / "state")
    store = opened(str(tmp_path / "state"))
    line = io.StringIO()
    status = StatusLine(line)
    status.say(f"{HOSTILE} succeeded")
    job = tmp_path / "job.py"
    job.write_text(
        "import millstream as ms\n"
        f"flow = ms.Flow({HOSTILE!r})\n"
        f"flow.from_iterable([1], name={HOSTILE!r}).collect()\n"
    )
    with pytest.raises(SystemExit):
        command_line.main(["explain", str(job)])
    plan = capsys.readouterr().out

    shown = list(described(store, None))
    for text in (*shown, *listed(store)):
        assert text.isprintable()
    check_harmless("\n".join(shown), len(shown))
    check_harmless(line.getvalue(), 1)
    check_harmless(plan, len(plan.split("\n")) - 1)


def test_a_hostile_name_forges_no_line_of_the_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the log believes it."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    show_log("info")
    try:
        logging.getLogger("millstream.job").warning("flow %s began", HOSTILE)
    finally:
        show_log("")

    check_harmless(capsys.readouterr().err, 1)


@pytest.mark.parametrize(
    "name", ["é" * 200, "\U0001f600" * 200, "數" * 64, "a/../" * 99]
)
def test_a_long_name_of_a_flow_fits_in_every_file_name(
    tmp_path: Path, name: str
) -> None:
    """It is quoted in some of them, which makes it longer still."""
    with closing(sqlite3.connect(tmp_path / "words.db")) as database:
        database.execute("CREATE TABLE words (word TEXT)")
    flow = ms.Flow(name)
    rows = flow.from_iterable(["a", "b"])
    rows.write_text(tmp_path / "out")
    rows.map(lambda row: (row,)).write_sqlite(
        tmp_path / "words.db", "words", columns=["word"], name="s" * 100
    )
    flow.run(on="local", workers=1, state=tmp_path / "state")

    assert len(quote(job_prefix(name), safe="")) <= 64
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.parametrize("verb", ["source", "sink"])
def test_a_name_that_no_file_can_have_is_a_sentence(tmp_path: Path, verb: str) -> None:
    """Found before anything is made."""
    names = {"source": "in", "sink": "out", verb: "é" * 40}
    flow = ms.Flow("long")
    rows = flow.from_iterable(["a"], name=names["source"])
    rows.write_text(tmp_path / "out", name=names["sink"])
    with pytest.raises(ms.UsageError, match=r"takes 240 letters .* shorter name="):
        flow.run(on="local", state=tmp_path / "state")

    assert not (tmp_path / "state").exists()


@given(st.text(max_size=80), st.integers(0, 10**6), st.integers(1, 10**9))
def test_parts_have_names_that_every_file_system_takes(
    sink: str, task: int, epoch: int
) -> None:
    """Whatever letters the sink's name has."""
    name = part_name(sink, task, epoch, 7, ".parquet")

    assert len(name.encode()) < 255
    assert "/" not in name
