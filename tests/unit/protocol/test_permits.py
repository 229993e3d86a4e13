"""Who may send what to whom."""

from __future__ import annotations

import pytest

from millstream.protocol.handshake import Role
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.protocol.messages import KINDS, Deploy, Heartbeat, Register
from millstream.protocol.packets import PacketKind
from millstream.protocol.permits import ANYTHING, permit

ONE, TWO = PeerId(1), PeerId(2)


def test_workers_and_coordinator_exchange_messages_only() -> None:
    """What a coordinator would unpickle of a batch is not even looked at."""
    there, back = permit(COORDINATOR, ONE), permit(ONE, COORDINATOR)

    assert there.kinds == back.kinds == {PacketKind.MESSAGE}
    assert Register in there.messages
    assert Register not in back.messages
    assert Deploy in back.messages
    assert Deploy not in there.messages


def test_two_workers_exchange_everything_but_messages() -> None:
    """A worker takes orders from the coordinator alone."""
    assert permit(ONE, TWO).kinds == set(PacketKind) - {PacketKind.MESSAGE}
    assert permit(ONE, TWO).messages == frozenset()


@pytest.mark.parametrize("receiver", [COORDINATOR, ONE])
def test_a_heartbeat_connection_carries_short_heartbeats(receiver: PeerId) -> None:
    """It stands beside the other one and needs nothing else."""
    found = permit(receiver, TWO, Role.HEARTBEAT)

    assert found.kinds == {PacketKind.MESSAGE}
    assert found.messages == {Heartbeat}
    assert found.payload_bytes_max == 16


def test_every_message_goes_one_way_at_least() -> None:
    """A new message that nobody may send would be refused everywhere."""
    assert ANYTHING.messages == set(KINDS)
