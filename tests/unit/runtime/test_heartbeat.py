"""The heart of a worker, over a real loopback socket."""

from __future__ import annotations

import socket
import threading

from millstream.config import Config
from millstream.protocol.ids import PeerId
from millstream.runtime.clock import SystemClock
from millstream.runtime.heartbeat import HeartbeatThread
from millstream.runtime.tcp import TCPNetwork


def a_network() -> TCPNetwork:
    return TCPNetwork(
        own_id=PeerId(1),
        job=b"job-0123456789ab",
        key=bytes(32),
        clock=SystemClock(),
        config=Config(),
        listens=False,
    )


def test_first_beat_does_not_wait_for_the_thread() -> None:
    """Native code that took the interpreter before it was never ended: nobody watched."""
    beats: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        heart = HeartbeatThread(
            PeerId(1),
            a_network(),
            silent.getsockname(),
            SystemClock(),
            interval_s=60.0,
            patience_s=60.0,
            on_lost=lambda _: None,
            on_beat=lambda: beats.append(threading.current_thread()),
        )

        heart.start()
        heart.stop()

    assert beats[0] is threading.current_thread()


def test_heart_that_was_turned_away_dials_again() -> None:
    """A listener that is crowded is no reason to end the process."""
    lost: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as crowded:
        crowded.settimeout(30)
        heart = HeartbeatThread(
            PeerId(1),
            a_network(),
            crowded.getsockname(),
            SystemClock(),
            interval_s=60.0,
            patience_s=60.0,
            on_lost=lost.append,
        )
        heart.start()
        for _ in range(3):
            crowded.accept()[0].close()
        heart.stop()

    assert lost == []


def test_heart_gives_up_where_nobody_listens() -> None:
    """The coordinator listened before the worker was started, so it is gone."""
    lost: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    heart = HeartbeatThread(
        PeerId(1),
        a_network(),
        address,
        SystemClock(),
        interval_s=60.0,
        patience_s=60.0,
        on_lost=lost.append,
    )
    heart.start()
    heart._thread.join(30)
    heart.stop()

    assert lost == ["Connection refused"]
