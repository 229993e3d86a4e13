"""What a failing function leaves behind: its own error, and what it was called with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.launchers import REAL_LAUNCHERS

import millstream as ms
from millstream.errors import SnapshotError
from millstream.testing import Pause, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.launchers import Launcher


def leave(_: Any = None) -> Any:
    sys.exit("enough")


def mix(_: Any, value: Any) -> Any:
    raise ValueError(value)


def unpacked(pair: Any) -> list[Any]:
    key, value = pair
    return [key, value]


class Raising(ms.StatefulFunction[int, int, int]):
    """Cannot do anything."""

    def on_record(self, key: int, value: int) -> list[int]:
        raise ValueError(key, value)


@pytest.mark.parametrize("launcher", REAL_LAUNCHERS, indirect=True)
def test_exit_of_a_function_is_its_error(launcher: Launcher) -> None:
    """It ends neither the worker nor this program, and says where it was."""
    flow = ms.Flow("leaving")
    flow.from_iterable([5]).map(leave).collect()
    with pytest.raises(
        ms.OperatorError, match=r"SystemExit: enough; .*value 5"
    ) as raised:
        launcher.run(flow, 2)

    assert isinstance(raised.value.__cause__, SystemExit)


def test_exit_of_a_source_is_its_error() -> None:
    """Like any other error of it."""
    flow = ms.Flow("leaving")
    flow.from_iterable(leave).collect()
    with pytest.raises(
        ms.OperatorError, match=r"from_iterable at .* SystemExit: enough"
    ):
        flow.run(on="local")


class Unopened(ms.StatefulFunction[int, int, int], ms.Sink[int]):
    """A function and a sink that do not open."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def open(self, *_: object) -> Any:
        raise self.error

    def on_record(self, key: int, value: int) -> Iterator[int]:
        raise NotImplementedError


@pytest.mark.parametrize("error", [OSError("no"), SystemExit("no")], ids=repr)
def test_what_does_not_open_is_named(error: BaseException) -> None:
    """By operator and line; and whoever leaves ends no worker."""
    words = f"'mine' at .* raised {type(error).__name__}: no; when it was opened"
    function, sink = ms.Flow("function"), ms.Flow("sink")
    keyed = function.from_iterable([1]).key_by(abs)
    keyed.process(Unopened(error), name="mine").collect()
    sink.from_iterable([1]).write(Unopened(error), name="mine")

    for flow in (function, sink):
        with pytest.raises(ms.OperatorError, match=words):
            flow.run(on="local", workers=2)


class Unruly(ms.StatefulFunction[int, int, int]):
    """Fails where it is told to, and whenever it is closed."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def on_record(self, key: int, value: int) -> Iterator[int]:
        if value == self.bad:
            raise ValueError(value)
        yield value

    def close(self) -> None:
        msg = "close failed"
        raise OSError(msg)


@pytest.mark.parametrize(
    ("bad", "workers"), [(2, 1), (4, 2)], ids=["at the third record", "never"]
)
@pytest.mark.parametrize("launcher", REAL_LAUNCHERS, indirect=True)
def test_error_in_close_is_told_if_there_is_no_other(
    launcher: Launcher, bad: int, workers: int
) -> None:
    """What failed first is what the user has to know; no worker is lost of either.

    A second worker could come to its own `close` before the first one has a bad record.
    """
    flow = ms.Flow("unruly")
    rows = flow.from_iterable(range(4)).key_by(lambda i: i % 2)
    rows.process(Unruly(bad), name="mine").collect()
    words = (
        r"ValueError: 2; .*value 2 of key 0"
        if bad == 2
        else "OSError: close failed; when it was closed"
    )

    with pytest.raises(ms.OperatorError, match=f"'mine' at .* raised {words}"):
        launcher.run(flow, workers)


class Uncut(ms.Source[int]):
    """A source that returns something else than splits of different names."""

    def __init__(self, *made: Any) -> None:
        self.made = made

    def splits(self, task_count: int) -> Any:
        del task_count
        return self.made

    def open(self, split: ms.Split, offset: int, config: ms.Config) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        (["first"], "'first' among its splits"),
        ([ms.Split("a", 1), ms.Split("a", 2)], "two splits with the name 'a'"),
        (
            [ms.Split("a", lambda: 1)],
            "the split 'a' with a payload that cannot be sent",
        ),
    ],
)
def test_splits_that_are_not_fit_for_snapshots_are_refused(
    splits: list[Any], words: str
) -> None:
    """After a restore two of a name would begin where one of them was."""
    flow = ms.Flow("uncut")
    flow.read(Uncut(*splits), name="mine").collect()
    with pytest.raises(ms.UsageError, match=rf"source 'mine' at .* {words}"):
        flow.run(on="local")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda rows: rows.key_by(int).map_with_state(0, lambda _, i: (i, 0)),
            "'map_with_state': the state of key 1 cannot be stored",
        ),
        (
            lambda rows: rows.iterate(lambda made: made.shuffle(), max_rounds=2),
            "what 'iterate' keeps cannot be stored",
        ),
    ],
    ids=["key", "rounds"],
)
@pytest.mark.filterwarnings("ignore::millstream.errors.UnboundedStateWarning")
def test_what_snapshots_cannot_hold_fails_the_job(
    make: Callable[[Any], Any], words: str, tmp_path: Path
) -> None:
    """Also where it is found in the background: no later epoch would have been complete."""

    class Kept(int):
        def __reduce__(self) -> Any:
            msg = "it stays here"
            raise TypeError(msg)

    script = [each for _ in range(400) for each in (1, Pause(), Pause())]
    flow = ms.Flow("kept")
    make(flow.read(ScriptedSource(script)).map(Kept)).collect()
    with pytest.raises(SnapshotError, match=words):
        flow.run(on="local", state=tmp_path, snapshot_every="1ms")


def test_interrupt_is_nobodys_error() -> None:
    """Ctrl-C ends the program, wherever it hits."""

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    flow = ms.Flow("interrupted")
    flow.from_iterable([5]).map(interrupted).collect()
    with pytest.raises(KeyboardInterrupt):
        flow.run(on="local")


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.key_by(lambda r: -r).map(lambda value: mix(0, value)),
        lambda s: s.key_by(lambda r: -r).map_with_state(0, mix),
        lambda s: s.key_by(lambda r: -r).scan(mix, initial=0),
        lambda s: s.key_by(lambda r: -r).process(Raising()),
        lambda s: s.group_by(lambda r: -r).fold(0, mix),
        lambda s: s.group_by(lambda r: -r).fold(0, mix, merge=mix),
    ],
)
def test_error_behind_a_key_tells_what_the_function_got(
    make: Callable[[Any], Any],
) -> None:
    """The value alone, as functions get it, and the key beside it."""
    flow = ms.Flow("keyed")
    make(flow.from_iterable([5])).collect()
    with pytest.raises(ms.OperatorError, match="value 5 of key -5"):
        flow.run(on="local", workers=2)


@pytest.mark.parametrize(
    "make",
    [
        lambda keyed: keyed.map(lambda pair: pair[0]),
        lambda keyed: keyed.flat_map(unpacked),
        lambda keyed: keyed.filter(lambda key, value: key),
        lambda keyed: keyed.count().map(lambda pair: pair[1]),
        lambda keyed: keyed.map(str).inspect(lambda pair: pair[1]),
    ],
    ids=["item", "unpacked", "two parameters", "behind an aggregate", "text"],
)
def test_function_that_expects_a_pair_is_told_of_unkey(
    make: Callable[[Any], Any],
) -> None:
    """It looks like a pair where it is printed, so this is the mistake to make."""
    flow = ms.Flow("pairs")
    make(flow.from_iterable([5]).key_by(lambda row: -row)).collect()
    with pytest.raises(ms.OperatorError, match=r"; behind key_by .* unkey\(\) gives"):
        flow.run(on="local")


def test_other_errors_have_nothing_to_do_with_unkey() -> None:
    """Neither those of plain rows, nor what a function says itself."""
    plain, keyed = ms.Flow("plain"), ms.Flow("keyed")
    rows: list[Any] = [5]
    plain.from_iterable(rows).map(lambda row: row[0]).collect()
    keyed.from_iterable([5]).key_by(abs).map(lambda value: mix(0, value)).collect()
    for flow in (plain, keyed):
        with pytest.raises(ms.OperatorError) as raised:
            flow.run(on="local")

        assert "unkey" not in str(raised.value)


@pytest.mark.parametrize(
    ("errors", "line"), [("replace", "caf\ufffd"), ("ignore", "caf")]
)
def test_text_of_another_encoding_can_be_read_on(
    errors: Any, line: str, tmp_path: Path
) -> None:
    """As the error about it says."""
    (tmp_path / "latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    flow = ms.Flow("strict")
    flow.read_text(tmp_path / "latin.txt").collect()
    with pytest.raises(ms.OperatorError, match="or errors='replace' to read on"):
        flow.run(on="local")
    flow = ms.Flow(errors)
    lines = flow.read_text(tmp_path / "latin.txt", errors=errors).collect()
    flow.run(on="local")

    assert lines.result() == [line]
