"""What may come on a connection, by who sends, who receives and what it is for.

A decoder asks before it looks into a payload.  Workers and coordinator exchange control
messages and nothing else, two workers exchange everything but those, and a heartbeat
connection carries heartbeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.protocol.handshake import Role
from millstream.protocol.ids import COORDINATOR
from millstream.protocol.messages import FROM_COORDINATOR, FROM_WORKERS, Heartbeat
from millstream.protocol.packets import PacketKind

if TYPE_CHECKING:
    from millstream.protocol.ids import PeerId

__all__ = ["ANYTHING", "Permit", "permit"]

_MESSAGES = frozenset({PacketKind.MESSAGE})
_HEARTBEAT_BYTES_MAX = 16
"""A heartbeat is a list of two small numbers."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What a receiver accepts.

    Attributes
    ----------
    kinds
        Packets, decided by the header alone.
    messages
        Classes of control messages.
    payload_bytes_max
        Longest payload, where that is less than what the configuration allows.
    """

    kinds: frozenset[PacketKind]
    messages: frozenset[type[object]] = frozenset()
    payload_bytes_max: int | None = None


ANYTHING = Permit(frozenset(PacketKind), FROM_COORDINATOR | FROM_WORKERS)
"""Whatever there is; for tools that look at packets of all directions."""

_BETWEEN_WORKERS = Permit(frozenset(PacketKind) - _MESSAGES)
_TO_COORDINATOR = Permit(_MESSAGES, FROM_WORKERS)
_TO_WORKER = Permit(_MESSAGES, FROM_COORDINATOR)
_HEARTBEATS = Permit(_MESSAGES, frozenset({Heartbeat}), _HEARTBEAT_BYTES_MAX)


def permit(receiver: PeerId, sender: PeerId, role: Role = Role.DATA) -> Permit:
    """Return what `receiver` accepts from `sender` on a connection of that role.

    Examples
    --------
    >>> sorted(kind.name for kind in permit(COORDINATOR, 1).kinds)
    ['MESSAGE']
    """
    assert receiver != sender, f"peer {sender} has no connection to itself"
    if role is Role.HEARTBEAT:
        return _HEARTBEATS
    if receiver == COORDINATOR:
        return _TO_COORDINATOR
    return _TO_WORKER if sender == COORDINATOR else _BETWEEN_WORKERS
