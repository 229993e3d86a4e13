"""How long until the first record: from the start of the process, medians of 3.

Three programs, each in a process of its own: a flow on ``local``, a flow on embedded
Spark, and a bare `SparkSession` with one trivial Python task.  All note the time when
user code sees its first record, on the clock that all processes of a machine share.
The goals: ``local`` in less than 1 s, embedded Spark at most 3 s after the bare session.

    python benchmarks/startup.py [--repeat 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLOW = """\
import time
import millstream as ms

flow = ms.Flow("first-record")
seen = flow.from_iterable(range(10)).map(lambda _: time.monotonic()).collect()
flow.run(workers=2)
print("seen", min(seen.result()))
"""

BARE = """\
import time
import pyarrow as pa
from pyspark.sql import SparkSession

def look(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"seen": [time.monotonic()] * batch.num_rows})

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
print("seen", spark.range(0, 1, 1, 1).mapInArrow(look, "seen double").collect()[0][0])
"""

MILLSTREAM = (sys.executable, "-m", "millstream", "run")
PROGRAMS = {
    "local": (FLOW, MILLSTREAM, ("--on", "local")),
    "bare Spark": (BARE, (sys.executable,), ()),
    "flow on Spark": (FLOW, MILLSTREAM, ("--on", "spark")),
}


def first_record_s(
    program: str, command: tuple[str, ...], options: tuple[str, ...]
) -> float:
    """Return the seconds from the start of the process to its first record."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "job.py"
        path.write_text(program)
        start_s = time.monotonic()
        answer = subprocess.run(  # noqa: S603 - our own programs
            [*command, str(path), *options],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    lines = [line.split() for line in answer.stdout.splitlines()]
    seen_s = next(float(words[1]) for words in lines if words[:1] == ["seen"])
    return seen_s - start_s


def main() -> None:
    """Measure and print, the programs taking turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(repeat):
        for name, parts in PROGRAMS.items():
            times[name].append(first_record_s(*parts))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median_s in medians.items():
        print(f"{name:<14} {median_s:6.2f} s to the first record")
    extra_s = medians["flow on Spark"] - medians["bare Spark"]
    print(f"{'difference':<14} {extra_s:+6.2f} s on Spark (goal: at most +3.00 s)")


if __name__ == "__main__":
    main()
