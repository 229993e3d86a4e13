"""Doubles for testing flows, as public as the rest of the API.

`simulate` runs a flow under seeded faults, `FunctionHarness` a stateful function alone;
`ScriptedSource`, `ManualClock` and `manual_time` take the place of input and time.
"""

from __future__ import annotations

from millstream.simulation.run import SeedOutcome, SimulationReport
from millstream.testing.clock import ManualClock, manual_time
from millstream.testing.harness import FunctionHarness, HarnessSnapshot
from millstream.testing.simulate import SimulationFailedError, simulate
from millstream.testing.source import Pause, Raise, ScriptedSource
from millstream.testing.standalone import StandaloneCluster

__all__ = [
    "FunctionHarness",
    "HarnessSnapshot",
    "ManualClock",
    "Pause",
    "Raise",
    "ScriptedSource",
    "SeedOutcome",
    "SimulationFailedError",
    "SimulationReport",
    "StandaloneCluster",
    "manual_time",
    "simulate",
]
