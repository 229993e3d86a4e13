"""Members that make no sense, among delays, resets and crashes of the simulator.

What they say is drawn by Hypothesis (`tests.support.liars`), encoded, and as late as a seed wants.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.recovery_flows import small
from tests.support.examples import examples
from tests.support.liars import Lie, lies

from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol.ids import COORDINATOR
from millstream.simulation.cluster import Cluster
from millstream.simulation.run import Simulator

if TYPE_CHECKING:
    from millstream.simulation.run import SeedOutcome

TURNS_EACH = 20
"""Turns of the simulator for one of a lie."""


class LyingCluster(Cluster):
    """A cluster in which somebody speaks for others."""

    are_peers_honest = False
    told: tuple[Lie, ...] = ()

    def turn(self) -> None:
        for lie in self.told:
            link = self.network.links.get(lie.source)
            if lie.turn * TURNS_EACH == self.turn_count and link is not None:
                link.send(lie.target, lie.packet)
        super().turn()


@cache
def simulator() -> Simulator:
    case = small()
    return Simulator(
        lambda config, count: deploy(
            case.flow.plan, config, count, SnapshotContext("simulation", "")
        ),
        case.flow.config(case.settings),
        check=case.check,
        workers=3,
        cluster_class=LyingCluster,
        is_keeping=True,
    )


def run(told: list[Lie], seed: int) -> SeedOutcome:
    """Return how a job with these lies ended."""
    LyingCluster.told = tuple(told)
    return simulator().run(seed)


@examples(0.5)
@given(st.lists(lies(), max_size=5), st.integers(0, 10_000))
def test_no_step_raises_whatever_members_say(told: list[Lie], seed: int) -> None:
    """Wrong rows may be forged, and a job be held up; processes do not end for it."""
    outcome = run(told, seed)

    assert [p for p in outcome.problems if " raised Traceback" in p] == []


@examples(0.5)
@given(lies().filter(lambda lie: lie.target == COORDINATOR), st.integers(0, 10_000))
def test_job_is_right_if_who_made_no_sense_was_given_up(lie: Lie, seed: int) -> None:
    """Nothing of the message took effect, and its loss is one more fault."""
    outcome = run([lie], seed)

    if any(" is given up: " in line for line in outcome.story):
        assert outcome.problems == ()
