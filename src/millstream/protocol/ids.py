"""The identifiers that cross process boundaries."""

from __future__ import annotations

from typing import NewType

__all__ = ["COORDINATOR", "ChannelId", "Epoch", "Generation", "PeerId"]

PeerId = NewType("PeerId", int)
"""A process that speaks the protocol: 0 is the coordinator, a worker counts from 1.

A worker's id belongs to one incarnation; a replacement gets a new one.
"""

COORDINATOR = PeerId(0)

ChannelId = NewType("ChannelId", int)
"""One FIFO from one task to another; `millstream.plan.physical` numbers them."""

Generation = NewType("Generation", int)
"""Goes up with every recovery; whatever comes from an older one is dropped."""

Epoch = NewType("Epoch", int)
"""Number of a cut; counts up from 1 over the whole life of a job, 0 is its beginning."""
