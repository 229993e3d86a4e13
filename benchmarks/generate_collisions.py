r"""Write invented accidents in the layout of New York's motor vehicle collisions data.

The columns, their order and their manner are those of the public data set: five years
of dates written month first, a location that is quoted because of its comma, street
names of which some have a comma too, most factors and vehicle types empty, about one
accident in five hundred lethal.  No row tells of a real accident.

    python benchmarks/generate_collisions.py --rows 1_000_000 --seed 7 OUT

All randomness comes from `Generator.random` of a seeded PCG64 and is turned into rows
by plain arithmetic, so the rows do not depend on how NumPy implements `choice`.
"""

from __future__ import annotations

import argparse
import hashlib
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BOROUGH", "COLUMNS", "DATE", "FACTORS", "KILLED", "generate"]
__all__ += ["written_collisions"]

SEED = 7
CHUNK_ROWS = 100_000
FIRST_DAY, DAYS = date(2016, 1, 1), 1827
FIRST_ID = 3_360_000
MINUTES = 24 * 60

DATE, BOROUGH, KILLED = "CRASH DATE", "BOROUGH", "NUMBER OF PERSONS KILLED"
VICTIMS = ("PERSONS", "PEDESTRIANS", "CYCLIST", "MOTORIST")
FACTORS = [f"CONTRIBUTING FACTOR VEHICLE {number}" for number in range(1, 6)]
VEHICLES = [f"VEHICLE TYPE CODE {number}" for number in range(1, 6)]
COLUMNS = [
    *(DATE, "CRASH TIME", BOROUGH, "ZIP CODE", "LATITUDE", "LONGITUDE", "LOCATION"),
    *("ON STREET NAME", "CROSS STREET NAME", "OFF STREET NAME"),
    *(f"NUMBER OF {who} {what}" for who in VICTIMS for what in ("INJURED", "KILLED")),
    *FACTORS,
    "COLLISION_ID",
    *VEHICLES,
]

BOROUGHS = ["BROOKLYN", "QUEENS", "MANHATTAN", "BRONX", "STATEN ISLAND"]
BOROUGH_CHANCES = [0.30, 0.27, 0.22, 0.15, 0.06]
FIRST_ZIPS = np.array([0, 11201, 11354, 10001, 10451, 10301])
ZIPS_PER_BOROUGH = 40

CHANCES_OF_INJURED = [0.80, 0.15, 0.03, 0.01, 0.006, 0.004]
CHANCES_OF_KILLED = [0.998, 0.0019, 0.0001]
CHANCES_OF_VICTIM = {"PEDESTRIANS": 0.25, "CYCLIST": 0.1, "MOTORIST": 0.65}

CHANCE_OF_NO_BOROUGH, CHANCE_OF_NO_LOCATION = 0.30, 0.08
CHANCE_OF_NO_NUMBERS = 0.0001
CHANCES_OF_NO_STREET = {
    "ON STREET NAME": 0.20,
    "CROSS STREET NAME": 0.35,
    "OFF STREET NAME": 0.75,
}
CHANCES_OF_NO_VEHICLE = [0.003, 0.14, 0.93, 0.98, 0.996]
"""An accident that names a third vehicle is rare; its factor is empty likewise."""

FACTOR_NAMES = [
    "Unspecified",
    "Driver Inattention/Distraction",
    "Failure to Yield Right-of-Way",
    "Following Too Closely",
    "Backing Unsafely",
    "Other Vehicular",
    "Fatigued/Drowsy",
    "Turning Improperly",
    "Passing or Lane Usage Improper",
    "Passing Too Closely",
    "Unsafe Lane Changing",
    "Traffic Control Disregarded",
    "Driver Inexperience",
    "Lost Consciousness",
    "Unsafe Speed",
    "Pavement Slippery",
    "Reaction to Uninvolved Vehicle",
    "Alcohol Involvement",
    "View Obstructed/Limited",
    "Oversized Vehicle",
    "Aggressive Driving/Road Rage",
    "Pedestrian/Bicyclist/Other Pedestrian Error/Confusion",
    "Brakes Defective",
    "Glare",
    "Obstruction/Debris",
    "Steering Failure",
    "Outside Car Distraction",
    "Animals Action",
    "Tire Failure/Inadequate",
    "Cell Phone (hand-Held)",
    "Headlights Defective",
]
VEHICLE_NAMES = [
    "Sedan",
    "Station Wagon/Sport Utility Vehicle",
    "Taxi",
    "Pick-up Truck",
    "Box Truck",
    "Bus",
    "Bike",
    "Motorcycle",
    "Tractor Truck Diesel",
    "Van",
    "Ambulance",
    "E-Scooter",
    "Garbage or Refuse",
    "Dump",
]
STREETS = [
    *(f"{number} AVENUE" for number in range(1, 60)),
    *(
        f"{side} {number} STREET"
        for number in range(1, 220)
        for side in ("EAST", "WEST")
    ),
    *(f"{number} PARKWAY, {end}BOUND" for number in range(1, 30) for end in "NS"),
]


def zipf(names: Sequence[str]) -> np.ndarray:
    """Return chances that fall with the rank of the name."""
    return 1.0 / (np.arange(len(names)) + 2.0)


class Draws:
    """Draws the columns of some rows from one stream of random numbers."""

    def __init__(self, rng: np.random.Generator, rows: int) -> None:
        self._rng = rng
        self._rows = rows

    def below(self, bound: int) -> np.ndarray:
        """Return integers from 0 up to the bound."""
        return (self._rng.random(self._rows) * bound).astype(np.int64)

    def happens(self, chance: float) -> np.ndarray:
        """Return flags that are set with the chance."""
        return self._rng.random(self._rows) < chance

    def picked(self, chances: Any) -> np.ndarray:
        """Return indices that occur with the given chances."""
        bounds = np.cumsum(chances)
        draws = self._rng.random(self._rows)
        return np.searchsorted(bounds[:-1] / bounds[-1], draws, side="right")

    def named(self, names: Sequence[str], chance_of_none: float) -> pl.Series:
        """Return names, the first ones most often, or nulls."""
        indices = 1 + self.picked(zipf(names))
        indices[self.happens(chance_of_none)] = 0
        return taken([None, *names], indices)


def taken(texts: Sequence[str | None], indices: np.ndarray) -> pl.Series:
    """Return the texts at the indices."""
    return pl.Series(texts, dtype=pl.String).gather(indices)


def accidents(draws: Draws, first_id: int, rows: int) -> pl.DataFrame:
    """Return the next rows of the file."""
    drawn = times(draws) | places(draws) | victims(draws)
    for factor, vehicle, chance in zip(
        FACTORS, VEHICLES, CHANCES_OF_NO_VEHICLE, strict=True
    ):
        drawn[factor] = draws.named(FACTOR_NAMES, chance)
        drawn[vehicle] = draws.named(VEHICLE_NAMES, chance)
    drawn["COLLISION_ID"] = np.arange(first_id, first_id + rows)
    return pl.DataFrame(drawn).select(COLUMNS)


def times(draws: Draws) -> dict[str, Any]:
    """Draw the columns that say when."""
    days = [FIRST_DAY + timedelta(days=number) for number in range(DAYS)]
    minutes = [f"{number // 60}:{number % 60:02}" for number in range(MINUTES)]
    return {
        DATE: taken([f"{day:%m/%d/%Y}" for day in days], draws.below(DAYS)),
        "CRASH TIME": taken(minutes, draws.below(MINUTES)),
    }


def places(draws: Draws) -> dict[str, Any]:
    """Draw the columns that say where."""
    borough = 1 + draws.picked(BOROUGH_CHANCES)
    borough[draws.happens(CHANCE_OF_NO_BOROUGH)] = 0
    zips = FIRST_ZIPS[borough] + draws.below(ZIPS_PER_BOROUGH)
    degrees = pl.DataFrame(
        {
            "north": 50_000 + draws.below(40_000),
            "west": 70_000 + draws.below(30_000),
            "is_known": ~draws.happens(CHANCE_OF_NO_LOCATION),
        }
    )
    known = degrees.select(
        LATITUDE=pl.when("is_known").then(pl.format("40.{}", "north")),
        LONGITUDE=pl.when("is_known").then(pl.format("-73.{}", "west")),
    ).with_columns(LOCATION=pl.format("({}, {})", "LATITUDE", "LONGITUDE"))
    streets = {
        column: draws.named(STREETS, chance)
        for column, chance in CHANCES_OF_NO_STREET.items()
    }
    return {
        BOROUGH: taken([None, *BOROUGHS], borough),
        "ZIP CODE": pl.Series(zips).set(pl.Series(borough == 0), None),
        **known.to_dict(),
        **streets,
    }


def victims(draws: Draws) -> dict[str, Any]:
    """Draw the columns that say how many; all victims of an accident are of a kind."""
    is_unknown = pl.Series(draws.happens(CHANCE_OF_NO_NUMBERS))
    kind = draws.picked(list(CHANCES_OF_VICTIM.values()))
    columns: dict[str, Any] = {}
    for what, chances in (
        ("INJURED", CHANCES_OF_INJURED),
        ("KILLED", CHANCES_OF_KILLED),
    ):
        count = draws.picked(chances)
        persons = pl.Series(count).set(is_unknown, None)
        columns[f"NUMBER OF PERSONS {what}"] = persons
        for number, who in enumerate(CHANCES_OF_VICTIM):
            columns[f"NUMBER OF {who} {what}"] = np.where(kind == number, count, 0)
    return columns


def generate(target: Path, rows: int, seed: int) -> None:
    """Write a header and this many rows to `target`.

    The file appears under its name only when it is complete.
    """
    partial = target.with_name(target.name + ".partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.PCG64(seed))
    with partial.open("wb") as file:
        for start in range(0, rows, CHUNK_ROWS):
            count = min(CHUNK_ROWS, rows - start)
            chunk = accidents(Draws(rng, count), FIRST_ID + start, count)
            chunk.write_csv(file, include_header=start == 0)
    partial.replace(target)


def written_collisions(directory: Path, rows: int) -> Path:
    """Return a file of so many accidents, made now if it was not made before.

    The generator's source is part of the name: a changed generator makes a new file.
    """
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    target = directory.expanduser() / f"collisions-{rows}-{SEED}-{version}.csv"
    if not target.exists():
        generate(target, rows, SEED)
    return target


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description="Generate accidents as CSV.")
    parser.add_argument("target", type=Path, metavar="OUT", help="file to write")
    parser.add_argument("--rows", type=int, default=1_000_000, help="accidents")
    parser.add_argument("--seed", type=int, default=SEED, help="same seed, same rows")
    arguments = parser.parse_args()
    generate(arguments.target, arguments.rows, arguments.seed)
    size_bytes = arguments.target.stat().st_size
    print(f"wrote {arguments.rows:,} rows, {size_bytes:,} bytes to {arguments.target}")


if __name__ == "__main__":
    main()
