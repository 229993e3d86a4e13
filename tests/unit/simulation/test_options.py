"""What a seed draws, and that it draws enough of everything."""

from __future__ import annotations

import pytest

from millstream.config import Config
from millstream.protocol.ids import COORDINATOR
from millstream.simulation.options import (
    STORAGE_KINDS,
    FaultKind,
    FaultLevel,
    draw_options,
)

SEEDS = range(300)


def test_same_seed_draws_the_same() -> None:
    """A seed is all that a failure report has."""
    assert draw_options(7, Config(), "all") == draw_options(7, Config(), "all")


def test_number_of_workers_can_be_fixed() -> None:
    """Otherwise it goes from 1 to 4."""
    assert {draw_options(s, Config(), "all").workers for s in SEEDS} == {1, 2, 3, 4}
    assert {draw_options(s, Config(), "all", 5).workers for s in SEEDS} == {5}


def test_every_kind_of_fault_is_drawn() -> None:
    """A fault that is never drawn is never survived; some need snapshots."""
    plain = [f for s in SEEDS for f in draw_options(s, Config(), "all").faults]
    keeping = [
        fault
        for seed in SEEDS
        for fault in draw_options(seed, Config(), "all", is_keeping=True).faults
    ]

    assert {fault.kind for fault in plain} == set(FaultKind) - set(STORAGE_KINDS)
    assert {fault.kind for fault in keeping} == set(FaultKind)
    assert {fault.kind for fault in plain + keeping if fault.is_fatal} == set(
        FaultKind
    ) - {FaultKind.CLOG, FaultKind.FULL, FaultKind.STUCK}


def test_only_the_driver_of_a_job_with_snapshots_crashes() -> None:
    """Without them there is nothing to go on from."""
    plain = [f for s in SEEDS for f in draw_options(s, Config(), "all").faults]
    crashes = [fault for fault in plain if fault.kind is FaultKind.CRASH]

    assert COORDINATOR not in {fault.peer for fault in crashes}


@pytest.mark.parametrize("level", ["benign", "none"])
def test_milder_levels_have_no_fatal_faults(level: FaultLevel) -> None:
    """Only the full level may end a job."""
    drawn = [f for s in SEEDS for f in draw_options(s, Config(), level).faults]

    assert not any(fault.is_fatal for fault in drawn)
    assert bool(drawn) == (level == "benign")


def test_benign_faults_together_break_no_time_limit() -> None:
    """They may all hit the same worker one after the other."""
    for seed in SEEDS:
        options = draw_options(seed, Config(), "benign")
        config = options.config
        total_ms = sum(fault.duration_ns for fault in options.faults) / 1e6

        assert total_ms < config.lease_ms - config.heartbeat_ms
        assert total_ms < config.handshake_ms


def test_limits_only_get_tighter() -> None:
    """A limit that the user set is not loosened behind the back."""
    base = Config(channel_credit_bytes=2_000)
    drawn = {draw_options(s, base, "none").config.channel_credit_bytes for s in SEEDS}

    assert max(drawn) == 2_000
    assert min(drawn) < 64
