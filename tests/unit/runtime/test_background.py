"""Background work: in order, with its errors, and not after the end."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from millstream.ports import Done
from millstream.runtime.background import Inline, Threaded, for_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.ports import Background

PATIENCE_S = 30


@pytest.fixture(params=["inline", "threaded"])
def background(request: pytest.FixtureRequest) -> Iterator[Background]:
    made: Inline | Threaded = (
        Inline() if request.param == "inline" else Threaded("test-background")
    )
    yield made
    made.close()


def done(background: Background, count: int) -> list[Done]:
    """Poll until so many pieces have ended."""
    found: list[Done] = []
    pause = threading.Event()
    for _ in range(PATIENCE_S * 1000):
        found += background.poll()
        if len(found) >= count:
            break
        pause.wait(0.001)
    return found


def test_pieces_run_in_order(background: Background) -> None:
    """So the end of a task is told after everything that it cut."""
    ran: list[int] = []
    for number in range(20):
        background.submit(number, partial(ran.append, number))

    assert [each.tag for each in done(background, 20)] == list(range(20))
    assert ran == list(range(20))


def test_result_is_handed_over_once(background: Background) -> None:
    """Whoever polls gets each end exactly one time."""
    background.submit("sum", lambda: 1 + 2)

    assert done(background, 1) == [Done("sum", 3)]
    assert background.poll() == []


def test_error_is_handed_over_and_the_next_piece_runs(background: Background) -> None:
    """A full disk is the caller's business."""

    def fail() -> None:
        msg = "disk full"
        raise OSError(msg)

    background.submit("bad", fail)
    background.submit("good", lambda: "fine")

    bad, good = done(background, 2)
    assert isinstance(bad.error, OSError)
    assert good == Done("good", "fine")


def test_submitting_does_not_wait() -> None:
    """The steps go on while a slow disk is written to."""
    background = Threaded("test-slow")
    may_end, has_ended = threading.Event(), threading.Event()

    def slow() -> Any:
        may_end.wait(PATIENCE_S)
        has_ended.set()

    background.submit("slow", slow)
    assert background.poll() == []
    assert not has_ended.is_set()
    may_end.set()

    assert [each.tag for each in done(background, 1)] == ["slow"]
    background.close()


def test_closing_begins_nothing_more() -> None:
    """What waits is dropped; the piece that runs is waited for by nobody."""
    background = Threaded("test-closing")
    has_begun, may_end = threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        has_begun.set()
        may_end.wait(PATIENCE_S)
        ran.append("first")

    background.submit("first", first)
    background.submit("second", lambda: ran.append("second"))
    has_begun.wait(PATIENCE_S)
    background.close()
    may_end.set()
    thread = background._thread
    assert thread is not None
    thread.join(PATIENCE_S)

    assert not thread.is_alive()
    assert ran == ["first"]


def test_a_driver_waits_for_the_piece_that_runs() -> None:
    """It gives its directory back next, and somebody else may read it at once."""
    background = for_driver()
    has_begun, is_written = threading.Event(), threading.Event()

    def manifest() -> None:
        has_begun.set()
        threading.Event().wait(0.05)
        is_written.set()

    background.submit("manifest", manifest)
    has_begun.wait(PATIENCE_S)
    background.close()

    assert is_written.is_set()


def test_no_thread_is_started_for_nothing() -> None:
    """A job without snapshots has none."""
    background = Threaded("test-idle")

    background.close()

    assert background._thread is None
