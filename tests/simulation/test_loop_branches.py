"""What happens in loops only now and then does happen in the swarm.

Method: count how often seeds come to each branch.  A flow in which barriers never come
round early says nothing about what is done with those that do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.loop_flows import bank, cycled, iterated, relay, saved, ticking
from tests.simulation.recovering import failures_of
from tests.simulation.visits import Visits, pieces

from millstream.plan.iteration import Port
from millstream.protocol.align import Aligner, Phase
from millstream.protocol.rounds import Decider, Head, HeadPhase
from millstream.protocol.termination import TerminationDetector
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.free_head import FreeHeadIntake
from millstream.runtime.head import HeadIntake

if TYPE_CHECKING:
    from collections.abc import Callable

BRANCHES: dict[str, tuple[type[Any], str, Callable[..., Any]]] = {
    "rows follow a barrier that came round early": (
        Aligner,
        "_handle_batch",
        lambda aligner, channel, _: (
            aligner.phase is Phase.ALIGNING and channel in aligner._marked
        ),
    ),
    "rows are under way at a cut": (
        Aligner,
        "_handle_batch",
        lambda aligner, channel, _: (
            aligner.phase is Phase.LOGGING and channel not in aligner._marked
        ),
    ),
    "an epoch comes while another goes round": (
        Aligner,
        "_handle_early",
        lambda *_: True,
    ),
    "logged rows come round once more": (
        FreeHeadIntake,
        "_deliver_restored",
        lambda intake: intake._in_flight.restored,
    ),
    "a look finds rows": (
        TerminationDetector,
        "_probe_for_end",
        lambda _, parts: any(part.returned for part in parts),
    ),
    "a final flush goes round": (
        TerminationDetector,
        "_probe_for_end",
        lambda looks, parts: (
            looks._probe.asks_flush and any(part.returned for part in parts)
        ),
    ),
    "rows are under way at a cut in a loop that nobody reads any more": (
        FreeHeadIntake,
        "_let_come_round",
        lambda intake: intake._is_unsettled,
    ),
    "a loop is over while a barrier goes round": (
        ChannelIntake,
        "_end_loop",
        lambda intake: intake.aligner.phase is Phase.LOGGING,
    ),
    "an epoch waits for the end of a round": (
        Decider,
        "announce",
        lambda decider, _: decider.round > 0,
    ),
    "a decision is repeated": (
        Decider,
        "repeat",
        lambda decider: decider.last is not None,
    ),
    "a head knows what is repeated": (
        Head,
        "decide",
        lambda head, decision: decision.number <= head.decided,
    ),
    "rows come back to a head before their round begins there": (
        HeadIntake,
        "_read",
        lambda intake, channel: (
            channel.port == Port.RETURNED
            and len(channel)
            and intake._head.phase is not HeadPhase.RETURNING
        ),
    ),
    "rows come before the state of their round": (
        ChannelIntake,
        "take",
        lambda intake, _: (
            intake._loop_state is not None
            and intake._delivered
            and intake._loop_state.begun <= intake._rounds_done
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_swarm_comes_to_every_rare_branch_of_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What no seed ever does, no seed proves."""
    visits = Visits(monkeypatch, BRANCHES)

    for seeds in pieces(range(5_000, 5_040)):
        for make in (relay, bank, iterated, cycled, ticking, saved):
            if visits.missing:
                assert failures_of(make.__name__, seeds) == []

    assert visits.missing == []
