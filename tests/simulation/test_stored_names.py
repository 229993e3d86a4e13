"""Nothing that a job stores names a module of ours, so that modules can be moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.loop_flows import LOOP_CASES
from tests.simulation.recovering import TIME_CASES
from tests.simulation.recovery_flows import CASES
from tests.support.stored_names import files_with_paths

from millstream.simulation.snapshot_checker import SnapshotChecker
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import Case

SEEDS = range(2)


@pytest.mark.parametrize(
    "make", [*CASES, *LOOP_CASES, *TIME_CASES], ids=lambda make: make.__name__
)
def test_no_stored_byte_names_a_module(
    make: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """State, splits, results and what sinks seal have the names of one table."""
    published = SnapshotChecker.published
    seen: list[str] = []

    def looking(checker: Any, name: str, data: bytes) -> None:
        published(checker, name, data)
        seen.append(name)
        checker._problems.extend(files_with_paths(checker._disk.files))

    monkeypatch.setattr(SnapshotChecker, "published", looking)
    case = make()
    simulate(case.flow, seeds=SEEDS, snapshots=True, check=case.check)
    assert any(name.startswith("manifests/") for name in seen)
