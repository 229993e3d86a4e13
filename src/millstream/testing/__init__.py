"""Doubles for testing flows, as public as the rest of the API.

`simulate` runs a flow under seeded faults; `ScriptedSource` and `ManualClock` take the
place of input and time.
"""

from __future__ import annotations

from millstream.simulation.run import SeedOutcome, SimulationReport
from millstream.testing.clock import ManualClock
from millstream.testing.simulate import SimulationFailedError, simulate
from millstream.testing.source import Pause, Raise, ScriptedSource
from millstream.testing.standalone import StandaloneCluster

__all__ = [
    "ManualClock",
    "Pause",
    "Raise",
    "ScriptedSource",
    "SeedOutcome",
    "SimulationFailedError",
    "SimulationReport",
    "StandaloneCluster",
    "simulate",
]
