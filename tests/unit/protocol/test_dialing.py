"""When a failed dial is tried again, and when not."""

from __future__ import annotations

from millstream.protocol.dialing import Dialing
from millstream.protocol.ids import PeerId

MS = 1_000_000
ADDRESS = ("10.0.0.2", 7000)
ONE, TWO = PeerId(1), PeerId(2)


def attempts(own: PeerId, deadline_ns: int) -> list[int]:
    """Return when each attempt is made, if every one fails after a millisecond."""
    dialing, now_ns, times = Dialing(own), 0, [0]
    dialing.begin(TWO, ADDRESS, deadline_ns)
    while dialing.fail(TWO, now_ns + MS):
        assert dialing.next_ns is not None
        now_ns = dialing.next_ns
        dialing.validate()
        assert dialing.due(now_ns - 1) == []
        assert dialing.due(now_ns) == [(TWO, ADDRESS)]
        assert dialing.due(now_ns) == []
        times.append(now_ns)
    return times


def test_pauses_grow_to_a_limit_and_end_at_the_deadline() -> None:
    """Soon at first, rarely later on, and not for ever."""
    times = attempts(ONE, 60_000 * MS)

    assert times[1] <= 21 * MS
    assert times[-1] <= 60_000 * MS
    assert 60 < len(times) < 140


def test_members_that_failed_together_do_not_come_back_together() -> None:
    """The pauses of two members differ from the first one on."""
    assert set(attempts(ONE, 5_000 * MS)) & set(attempts(PeerId(3), 5_000 * MS)) == {0}


def test_nobody_is_dialed_again_where_nobody_listens() -> None:
    """A listener is there before anybody hears of it, so it is gone."""
    dialing = Dialing(ONE)
    dialing.begin(TWO, ADDRESS, 60_000 * MS)

    assert not dialing.fail(TWO, MS, is_absent=True)
    assert TWO not in dialing


def test_who_dropped_out_is_forgotten() -> None:
    """An attempt under way must be ended by the caller; a pause just ends."""
    dialing = Dialing(ONE)
    for peer in (TWO, PeerId(3), PeerId(4)):
        dialing.begin(peer, ADDRESS, 60_000 * MS)
    dialing.fail(PeerId(3), MS)

    assert dialing.keep({TWO}) == [PeerId(4)]
    assert TWO in dialing
    assert dialing.next_ns is None
