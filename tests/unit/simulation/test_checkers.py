"""The checkers notice what they are there for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import job_cores

from millstream.config import Config
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.job import Phase
from millstream.protocol.job_events import TimePassed
from millstream.protocol.packets import Packet, PacketKind
from millstream.simulation.checkers import ChannelChecker, difference
from millstream.simulation.core_checker import CoreChecker

ONE, TWO = PeerId(1), PeerId(2)


def packet(
    kind: PacketKind,
    sequence: int = 0,
    body: Any = None,
    cost: int = 0,
    generation: int = 1,
) -> Packet:
    return Packet(kind, Generation(generation), ChannelId(4), sequence, body, cost)


class Watched:
    """A checker and what it said."""

    def __init__(self, credit_bytes: int = 100) -> None:
        self.problems: list[str] = []
        config = Config(channel_credit_bytes=credit_bytes)
        self.checker = ChannelChecker(config, self.problems)

    def send(self, *packets: Packet) -> None:
        for each in packets:
            self.checker.sent(ONE, TWO, each)

    def get(self, *packets: Packet) -> None:
        for each in packets:
            self.checker.arrived(ONE, TWO, each)


def test_channel_in_order_is_fine() -> None:
    """Batches and barriers from 0 on, then the end."""
    watched = Watched()
    elements = (
        packet(PacketKind.BATCH),
        packet(PacketKind.BARRIER, 1),
        packet(PacketKind.END, 2),
    )
    watched.send(*elements)
    watched.get(*elements)

    assert watched.problems == []


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (
            packet(PacketKind.BATCH, 0),
            "element 0 (BATCH) of channel 4, where element 1",
        ),
        (
            packet(PacketKind.BATCH, 2),
            "element 2 (BATCH) of channel 4, where element 1",
        ),
        (
            packet(PacketKind.BARRIER),
            "element 0 (BARRIER) of channel 4, where element 1",
        ),
    ],
)
def test_repeated_and_skipped_elements_are_noticed(second: Packet, said: str) -> None:
    """On both ends of a channel."""
    sender, reader = Watched(), Watched()
    sender.send(packet(PacketKind.BATCH), second)
    reader.get(packet(PacketKind.BATCH), second)

    assert said in sender.problems[0]
    assert said in reader.problems[0]


def test_channel_begins_anew_with_every_generation() -> None:
    """Sequence, end and credit are those of the generation."""
    watched = Watched(credit_bytes=100)
    watched.send(packet(PacketKind.BATCH, cost=100), packet(PacketKind.END, 1))

    watched.send(packet(PacketKind.BATCH, cost=100, generation=2))

    assert watched.problems == []


def test_element_after_the_end_is_noticed() -> None:
    """The end is the end."""
    watched = Watched()
    watched.get(packet(PacketKind.END), packet(PacketKind.BATCH, 1))

    assert "where nothing, after the end was due" in watched.problems[0]


def test_batch_without_credit_is_noticed() -> None:
    """The last batch may overdraw the window; the next must wait for credit."""
    watched = Watched(credit_bytes=100)
    watched.send(
        packet(PacketKind.BATCH, 0, cost=99), packet(PacketKind.BATCH, 1, cost=60)
    )
    assert watched.problems == []
    watched.get(packet(PacketKind.CREDIT, body=59))
    watched.send(packet(PacketKind.BATCH, 2, cost=1))

    assert "had 100 bytes in flight" in watched.problems[0]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([{"a": [1]}, {"b": {2}}], [{"b": {2}}, {"a": [1]}]),
        ([[1], [1], (1,)], [(1,), [1], [1]]),
        ([1, None, "x"], ["x", 1, None]),
    ],
)
def test_rows_of_any_kind_are_compared_in_any_order(
    found: list[Any], expected: list[Any]
) -> None:
    """Rows need be neither hashable nor comparable."""
    assert difference({"s": found}, {"s": expected}) is None


@pytest.mark.parametrize(
    ("found", "expected", "said"),
    [
        ([1, 1, 2], [1, 2], "got 1 rows (1) too many and lacks none"),
        ([[1]], [[1], [2]], "got none too many and lacks 1 rows ([2])"),
        ([], [3], "got none too many and lacks 1 rows (3)"),
    ],
)
def test_difference_says_what_is_too_many_and_what_is_missing(
    found: list[Any], expected: list[Any], said: str
) -> None:
    """Duplicates count: a multiset, never a set."""
    assert difference({"s": found}, {"s": expected}) == f"sink 's' {said}"


def test_sink_without_rows_is_missed() -> None:
    """A sink that got nothing at all is not in what was found."""
    assert difference({}, {"s": [1]}) is not None


def test_core_that_is_wrong_is_a_problem_once() -> None:
    """What goes wrong first is told with its event; the rest follows from it."""
    problems: list[str] = []
    core = job_cores.connecting().core
    checker = CoreChecker(problems)
    core.phase = Phase.RUNNING

    for _ in range(3):
        core.handle(TimePassed(1))
        checker.decided(core, TimePassed(1))

    said = "the job is RUNNING, and workers [1, 2] are not ready"
    assert problems == [f"JobCore.validate says after TimePassed(now_ns=1): {said}"]
