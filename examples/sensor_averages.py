"""Average the readings of every sensor.

What it shows: a source that every worker generates its own part of, rows of a class of
your own that travel between workers by key, and a mean per key.

    millstream run examples/sensor_averages.py --on local --workers 2
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

READINGS = 20_000
SENSORS = ("attic", "cellar", "garden", "kitchen")
USUAL = {"attic": 24.0, "cellar": 12.0, "garden": 9.0, "kitchen": 21.0}


@dataclass(frozen=True)
class Reading:
    """One measurement."""

    sensor: str
    celsius: float


def readings(rank: int, size: int) -> Iterator[Reading]:
    """Generate every `size`-th reading; the same ones each time."""
    for number in range(rank, READINGS, size):
        noise = random.Random(number).uniform(-3, 3)  # noqa: S311 - no secret
        sensor = SENSORS[number % len(SENSORS)]
        yield Reading(sensor, USUAL[sensor] + noise)


flow = ms.Flow("sensor-averages")
by_sensor = flow.from_parallel(readings).key_by(lambda reading: reading.sensor)
averages = by_sensor.map(lambda reading: reading.celsius).mean().collect(dict)

if __name__ == "__main__":
    flow.run()
    for sensor, celsius in sorted(averages.result().items()):
        print(f"{sensor:8} {celsius:5.1f} °C")
