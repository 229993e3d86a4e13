"""The hash of a run, and its story in words."""

from __future__ import annotations

from millstream.simulation.trace import Happening, Trace


def test_digest_depends_on_every_event() -> None:
    """Another time, peer or order is another trace."""
    first, second, third = Trace(), Trace(), Trace()
    first.note(1, Happening.TURN, 1)
    second.note(2, Happening.TURN, 1)
    third.note(1, Happening.TURN, 1)

    assert first.digest != second.digest
    assert first.digest == third.digest


def test_story_has_one_line_per_event() -> None:
    """What a person reads when a seed fails."""
    trace = Trace()
    trace.note(2_500_000, Happening.PACKET, 1, 2, channel=7, detail=9)

    assert trace.story() == "       2.500 ms  PACKET    peer 1, other 2, channel 7, 9"
