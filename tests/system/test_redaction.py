"""Jobs that fail with a credential in somebody's mouth: nobody hears it from Millstream.

Functions, sources, sinks, database drivers and file systems raise with what they were
given.  Then all that a user, a log, a terminal or a state directory gets is searched.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from tests.support.examples import mostly_slow

import millstream as ms
from millstream.connectors.base import Sink, SinkWriter, Source, SourceReader, Split
from millstream.credentials import Credential
from millstream.observe import log as logs
from millstream.runtime.report import failure_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LAUNCHERS = mostly_slow("local", "processes")
CORPUS = {
    "sftp://bob:hunter2@host/x": ["hunter2"],
    "s3://AKIA:hun/ter2+key@bucket/x": ["hun/ter2", "ter2+key"],
    "ftp://bob:pa/ssw0rd@host/in?sig=5f1c0ffee": ["pa/ss", "ssw0rd", "5f1c0ffee"],
    "https://bob:hun?ter2@host/x": ["hun?ter2", "ter2"],
    "https://bob:hunter2%zz@host/x": ["hunter2"],
    "https://bob:hun'ter2)@host/x": ["hun'ter2", "ter2)", "hun\\'ter2"],
    "https://host/x?X-Amz-Signature=5f1c0ffee": ["5f1c0ffee"],
    "sc://host:15002/;token=5f1c0ffee": ["5f1c0ffee"],
}
DSN = "host=127.0.0.1 port={port} user=bob password='hun ter2' connect_timeout=5"


class RefusedError(Exception):
    """An error of a package that keeps what it was given."""

    def __init__(self, url: str) -> None:
        super().__init__(f"no way to {url}")
        self.url = url


class QuietError(Exception):
    """An error that shows nothing of what it was given."""

    def __str__(self) -> str:
        return "quiet"

    __repr__ = __str__


class Kept(logging.Handler):
    """A handler of the program's own, which formats records in its own way."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.__dict__!r}")
        self.lines.append(logging.Formatter().format(record))


@contextmanager
def logged() -> Iterator[list[str]]:
    root, handler = logging.getLogger("millstream"), Kept()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that led to it, what a traceback leaves out too."""
    seen: list[BaseException | None] = [error]
    while seen:
        each = seen.pop()
        if each is not None:
            yield each
            seen += [each.__cause__, each.__context__]


def told_by(error: BaseException) -> list[str]:
    """Return all that an error tells, by whatever way somebody looks at it."""
    told = list(getattr(error, "story", ()))
    for each in chain(error):
        told += [str(each), repr(each), repr(vars(each)), repr(each.args)]
        told += traceback.format_exception(each)
    return told


def check_untold(secrets: list[str], said: list[str], folder: Path) -> None:
    stored = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert said
    for secret in secrets:
        assert [text for text in said if secret in text] == []
        assert [data for data in stored if secret.encode() in data] == []


def failed(
    flow: ms.Flow, folder: Path, launcher: Any, **options: Any
) -> tuple[ms.MillstreamError, list[str]]:
    """Run a flow that fails; return the error, and all that was said."""
    options = {"state": folder / "state", "restarts_max": 1, **options}
    with logged() as lines:
        job = None
        try:
            job = flow.start(on=launcher, workers=1, **options)
            job.wait()
        except ms.MillstreamError as error:
            story = [] if job is None else [*job.story(), repr(job.recoveries())]
            return error, [*told_by(error), *story, *lines]
    raise AssertionError


def raising(url: str, kind: Callable[[str], Exception]) -> Callable[[int], int]:
    """Return a function that fails at a row and tells where it wanted to look."""

    def look_up(row: int) -> int:
        if row == 3:
            raise kind(url) from RuntimeError(f"before: {url}")
        return row

    return look_up


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("kind", [ValueError, RefusedError, FileNotFoundError])
def test_a_function_that_raises_with_a_url_tells_no_credential(
    launcher: str, kind: Callable[[str], Exception], tmp_path: Path
) -> None:
    """The error keeps its type, and the URL what is no secret of it."""
    for number, (url, secrets) in enumerate(CORPUS.items()):
        folder = tmp_path / str(number)
        flow = ms.Flow("raises")
        rows = flow.from_iterable(range(5)).map(raising(url, kind))
        rows.write_text(folder / "out")
        error, said = failed(flow, folder, launcher)

        assert isinstance(error, ms.OperatorError)
        assert "value 3" in str(error)
        assert isinstance(error.__cause__, kind)  # type: ignore[arg-type]
        assert url.partition("://")[0] in str(error)
        check_untold(secrets, said, folder)
        if launcher != "local":
            break


def test_rows_that_are_no_urls_are_shown_as_they_are(tmp_path: Path) -> None:
    """A row is not a credential, though it may look like one to somebody."""
    row = "bob:hunter2@host/x?sig=5f1c0ffee"
    flow = ms.Flow("rows")
    flow.from_iterable([row]).map(int).collect()
    error, _ = failed(flow, tmp_path, "local")

    assert str(error).count(row) == 2
    assert row in str(error.__cause__)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_database_that_refuses_in_a_worker_tells_no_password(
    launcher: str, tmp_path: Path
) -> None:
    """The function holds the connection string that its sink was given, and libpq's text."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dsn = DSN.format(port=taken.getsockname()[1])
    held = Credential(dsn, ["hun ter2"])

    def look_up(row: int) -> int:
        try:
            psycopg.connect(held.value)
        except psycopg.Error as error:
            msg = f"{error}; {held.value} with 'hun ter2' is wrong"
            raise type(error)(msg) from error
        return row

    flow = ms.Flow("refused")
    flow.from_iterable(range(3)).map(look_up).collect()
    error, said = failed(flow, tmp_path, launcher)

    assert "127.0.0.1" in str(error)
    check_untold(["hun ter2"], said, tmp_path)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_table_on_a_server_that_is_gone_tells_no_password(
    launcher: str, tmp_path: Path
) -> None:
    """The driver asks first; what its package says is repeated."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dsn = DSN.format(port=taken.getsockname()[1])
    flow = ms.Flow("gone")
    rows = flow.from_iterable([("a", 1)])
    rows.write_postgres(dsn, "words", columns=["word", "n"])
    error, said = failed(flow, tmp_path, launcher)

    assert "PostgreSQL" in str(error)
    check_untold(["hun ter2"], said, tmp_path)


class Telling:
    """Repeats its URL, and parts of it, when asked to fail."""

    def __init__(self, url: str, moment: str, kind: type[Exception] = OSError) -> None:
        self._url = Credential(url)
        self._moment = moment
        self._kind = kind

    def do(self, moment: str) -> None:
        if moment == self._moment:
            user_info = self._url.value.partition("://")[2].rpartition("@")[0]
            msg = f"no {moment}: {self._url.value}, for {user_info}"
            raise self._kind(msg)


class OwnSource(Source[int]):
    """A source of somebody's own."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    def splits(self, task_count: int) -> list[Split]:
        self._telling.do("splits")
        return [Split("only", task_count)]

    def open(self, split: Split, offset: int, config: Any) -> SourceReader[int]:
        self._telling.do("open")
        return OwnReader(self._telling)


class OwnReader(SourceReader[int]):
    """Reads one row."""

    offset = 0

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    def read(self, rows: int) -> list[int] | None:
        self._telling.do("read")
        self.offset += 1
        return [1] if self.offset == 1 else None

    def close(self) -> None:
        self._telling.do("close")


class OwnSink(Sink[int]):
    """A sink of somebody's own."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    def prepare(self, job: str, *, is_resumed: bool = False) -> None:
        self._telling.do("prepare")

    def open(self, job: str, task: int) -> SinkWriter[int]:
        self._telling.do("open")
        return OwnWriter(self._telling)

    def commit(self, job: str, epoch: int, transactions: list[Any]) -> None:
        self._telling.do("commit")

    def complete(self, job: str) -> None:
        self._telling.do("complete")


class OwnWriter(SinkWriter[int]):
    """Writes to nowhere."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    def write(self, rows: list[int]) -> None:
        self._telling.do("write")

    def seal(self, epoch: int) -> Any:
        self._telling.do("seal")
        return epoch

    def close(self) -> None:
        self._telling.do("close")


@pytest.mark.parametrize(
    "moment",
    ["prepare", "open", "write", "seal", "commit", "complete"],
)
@pytest.mark.parametrize("kind", [OSError, ms.OperationalError])
def test_a_sink_that_repeats_its_url_is_not_repeated(
    moment: str, kind: type[Exception], tmp_path: Path
) -> None:
    """Neither in a worker, nor in the driver; also where it cuts the URL at its own places."""
    url = "ftp://bob:pa/ssw0rd@host/in?sig=5f1c0ffee"
    sink = OwnSink(Telling(url, moment, kind))
    flow = ms.Flow("sink")
    flow.from_iterable(range(3)).write(sink, name="own")
    error, said = failed(flow, tmp_path, "local")

    assert f"no {moment}" in str(error)
    assert "ftp://host/in" in str(error)
    check_untold(CORPUS[url], said, tmp_path)


@pytest.mark.parametrize("moment", ["splits", "open", "read"])
def test_a_source_that_repeats_its_url_is_not_repeated(
    moment: str, tmp_path: Path
) -> None:
    """Nor what it is asked for."""
    url = "ftp://bob:pa/ssw0rd@host/in?sig=5f1c0ffee"
    flow = ms.Flow("source")
    flow.read(OwnSource(Telling(url, moment)), name="own").collect()
    error, said = failed(flow, tmp_path, "local")

    assert f"no {moment}" in str(error)
    check_untold(CORPUS[url], said, tmp_path)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_file_system_that_fails_in_a_worker_tells_no_credential(
    launcher: str, tmp_path: Path
) -> None:
    """Its package is given user, password and signature, and tells what it likes."""
    url = "ftp://bob:pa/ssw0rd@host/in?sig=5f1c0ffee"

    def look_up(row: int) -> str:
        system = fsspec.filesystem("memory")
        with system.open(f"/{url}/{row}") as file:
            return str(file.read())

    flow = ms.Flow("remote")
    flow.from_iterable([1]).map(look_up).collect()
    error, said = failed(flow, tmp_path, launcher)

    assert isinstance(error.__cause__, FileNotFoundError)
    check_untold(CORPUS[url], said, tmp_path)


def test_a_dead_letter_tells_no_credential(tmp_path: Path) -> None:
    """Its cause is stored with it; its record is the user's, and stays what it is."""
    url = "sftp://bob:hunter2@host/x"

    def look_up(row: str) -> str:
        msg = f"no way to {url}"
        raise ValueError(msg)

    flow = ms.Flow("letters")
    flow.from_iterable(["https://host/?q=5"]).map(look_up).for_each(id)
    letters = flow.dead_letters(5).collect()
    flow.run(on="local", state=tmp_path)
    [letter] = letters.result()

    assert letter.record == "https://host/?q=5"
    assert "no way to sftp://host/x" in letter.cause
    check_untold(["hunter2"], [str(letter)], tmp_path)


def test_the_command_line_tells_no_credential(tmp_path: Path) -> None:
    """Of a job that fails, and of a job file that raises by itself."""
    url = "ftp://bob:pa/ssw0rd@host/in?sig=5f1c0ffee"
    job = tmp_path / "job.py"
    texts = {
        "worker": "flow.from_iterable([1]).map(look_up).collect()\nflow.run(on='local')",
        "file": "look_up(1)",
    }
    for text in texts.values():
        job.write_text(
            "import millstream as ms\n"
            f"URL = {url!r}\n"
            "def look_up(row): raise OSError(f'no way to {URL}')\n"
            f"flow = ms.Flow('told')\n{text}\n"
        )
        command = [sys.executable, "-m", "millstream", "run", "-vv", str(job)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=100
        )

        assert done.returncode == 1
        assert "no way to ftp://host/in" in done.stderr
        for secret in CORPUS[url]:
            assert secret not in done.stderr + done.stdout


def test_a_report_holds_no_credential() -> None:
    """It crosses the network before anybody else looks at it."""
    held = Credential("sftp://bob:hunter2@host/x")
    error = ValueError(f"no way to {held.value} for 'hunter2'")
    error.add_note("hunter2")
    report = failure_report(error, 1, 1, 0)  # type: ignore[arg-type]

    assert "hunter2" not in repr(report)
    assert "no way to sftp://host/x for '***'" in report.text
    assert "ValueError: no way to sftp://host/x" in report.details
    assert b"ValueError" in report.cause
    quiet = failure_report(QuietError(held.value), 1, 1, 0)  # type: ignore[arg-type]
    assert b"QuietError" in quiet.cause
    assert b"hunter2" not in quiet.cause


def test_a_cause_that_cannot_be_told_otherwise_stays_away() -> None:
    """Its text may be anything; the type alone is not worth a password."""
    held = Credential("sftp://bob:hunter2@host/x")
    for error in (
        UnicodeDecodeError("utf-8", b"hunter2", 0, 1, "bad"),
        ValueError({"url": held.value}),
        ValueError(b"hunter2"),
    ):
        assert failure_report(error, 1, 1, 0).cause == b""  # type: ignore[arg-type]


def test_an_own_handler_gets_no_command_for_a_terminal() -> None:
    """Names may hold anything; who attaches a handler need not know."""
    name = "clean\x1b[2J\nERROR forged\r\u202e"
    with logged() as lines:
        flow = ms.Flow(name)
        flow.from_iterable([1, 0], name=name[:12]).map(lambda row: 1 // row).collect()
        with pytest.raises(ms.OperatorError):
            flow.run(on="local")
        logs.logger("progress").warning("%s runs", name)
    worker = [line for line in lines if "ZeroDivisionError" in line]

    assert any("Traceback" in line for line in worker)
    assert r"clean\x1b[2J\nERROR forged\r\u202e runs" in lines[-1]
    for letter in ("\x1b", "\r", "\u202e"):
        assert [line for line in lines if letter in line] == []


def test_an_own_handler_gets_no_credential() -> None:
    """Neither in a message, nor in its arguments, nor by an exception that is logged."""
    held = Credential("sftp://bob:hunter2@host/x")
    with logged() as lines:
        error = OSError(held.value)
        words = ("no way to %s: %s", held.value, error)
        logs.logger("job").warning(*words, exc_info=error)

    assert "no way to sftp://host/x: sftp://host/x" in lines[1]
    assert "OSError: sftp://host/x" in lines[1]
    assert [line for line in lines if "hunter2" in line] == []


def test_every_logger_is_made_in_one_place() -> None:
    """One that is made otherwise passes names on as they are."""
    known = logging.Logger.manager.loggerDict
    made = [each for name, each in known.items() if name.startswith("millstream.")]
    found = [each for each in made if isinstance(each, logging.Logger)]

    assert found
    assert all(logs._HARMLESS in each.filters for each in found)
