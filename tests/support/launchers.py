"""One way to run a flow on every launcher, for tests that must hold on all of them.

The fixture is there for every test; on Spark it asks for the session of
``tests.spark.sessions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

from millstream.testing import simulate

if TYPE_CHECKING:
    import millstream as ms

__all__ = ["LAUNCHERS", "REAL_LAUNCHERS", "WIDTHS", "Launcher", "launcher"]

LAUNCHERS = [
    pytest.param("local", id="local"),
    pytest.param("simulated", id="simulated"),
    pytest.param("processes", id="processes", marks=pytest.mark.slow),
    pytest.param("spark", id="spark", marks=pytest.mark.spark),
]
REAL_LAUNCHERS = [param for param in LAUNCHERS if param.id != "simulated"]
"""Those that write files and raise what a user's function raised."""

WIDTHS = [
    pytest.param(*param.values, workers, id=f"{param.id}-{workers}", marks=param.marks)
    for param in LAUNCHERS
    for workers in (1, 2, 3)
    if param.id != "spark" or workers == 2
]
"""Every launcher with one to three workers; on Spark two are enough."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Runs flows and gives their results back."""

    kind: Literal["local", "simulated", "processes", "spark"]
    spark: Any = None

    def run(self, flow: ms.Flow, workers: int) -> list[Any]:
        """Run the flow; return the results of all handles in the order of making."""
        if self.kind == "simulated":
            return _simulated(flow, workers)
        self.job(flow, workers)
        return [handle.result() for handle in flow.handles]

    def job(self, flow: ms.Flow, workers: int) -> ms.Job:
        """Run the flow; return its job, which there is none of in a simulation."""
        assert self.kind != "simulated", "a simulation has many jobs"
        if self.kind == "spark":
            return flow.run(spark=self.spark, workers=workers)
        return flow.run(on=self.kind, workers=workers)


@pytest.fixture(params=LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """Every launcher in turn; those that are slow only where they are asked for."""
    if request.param == "spark":
        return Launcher("spark", request.getfixturevalue("spark"))
    return Launcher(request.param)


def _simulated(flow: ms.Flow, workers: int) -> list[Any]:
    """Run on virtual time with delays; the sinks' rows are seen by the checker only."""
    seen: dict[str, list[Any]] = {}
    simulate(flow, seeds=[workers], workers=workers, faults="benign", check=seen.update)
    names = {node.id: node.name for node in flow.plan.nodes}
    return [
        handle._shape(seen.get(names[handle._node_id], [])) for handle in flow.handles
    ]
