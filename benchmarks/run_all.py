"""Run every benchmark, one after the other, and print all figures in one table.

A benchmark that writes ``results/<name>.json`` through `measure.finish` is read from
there; of any other, the lines that end with ``(goal: at least 0.60)`` or
``(goal: at most 3)`` are taken: a name, its number and unit, and anything else.

    python benchmarks/run_all.py [--quick]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

import measure

HERE = Path(__file__).parent
GOAL = re.compile(
    r"^(?P<name>\S.*?)\s+(?P<value>[+-]?\d[\d.,]*)\s*(?P<unit>[^\s(]*).*"
    r"\(goal: (?P<bound>at least|at most) (?P<target>[+-]?\d[\d.,]*).*\)\s*$"
)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A script of this folder, and what makes it quick."""

    name: str
    quick: tuple[str, ...] = ("--quick",)


BENCHMARKS = (
    Benchmark("word_count"),
    Benchmark("frame_word_count"),
    Benchmark("win_word_count"),
    Benchmark("sliding_event_time"),
    Benchmark("collisions"),
    Benchmark("group_by"),
    Benchmark("snapshot_cost"),
    Benchmark("cut_pause"),
    Benchmark("merge_pause"),
    Benchmark("recovery"),
    Benchmark("engine_overhead"),
    Benchmark("buffers"),
    Benchmark("latency"),
    Benchmark("nexmark"),
    Benchmark("channel_throughput", quick=("256",)),
    Benchmark("secure_channel"),
    Benchmark("startup", quick=("--repeat", "1")),
)


def main() -> None:
    """Run all, print the summary, and fail if a benchmark did."""
    options = measure.arguments(__doc__ or "").parse_args()
    found: list[tuple[str, measure.Figure]] = []
    failed: list[str] = []
    for benchmark in BENCHMARKS:
        print(f"\n=== {benchmark.name}", flush=True)
        figures = run(benchmark, is_quick=options.quick)
        if figures is None:
            failed.append(benchmark.name)
        found += [(benchmark.name, figure) for figure in figures or ()]
    print("\n=== summary" + (" (quick: a smoke test)" if options.quick else ""))
    measure.print_table(
        ("benchmark", "figure", "measured", "target", ""),
        [(name, *figure.cells) for name, figure in found],
    )
    if failed:
        sys.exit(f"\nfailed: {', '.join(failed)}; see above for the reasons")


def run(benchmark: Benchmark, *, is_quick: bool) -> list[measure.Figure] | None:
    """Run one script, show what it prints, and return its figures; None if it failed."""
    record = measure.RESULTS / f"{benchmark.name}.json"
    record.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / f"{benchmark.name}.py")]
    command += benchmark.quick if is_quick else ()
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        return None
    return recorded(record) if record.exists() else stated(lines)


def recorded(record: Path) -> list[measure.Figure]:
    """Return the figures of a results file."""
    names = {field.name for field in fields(measure.Figure)}
    return [
        measure.Figure(
            **{name: value for name, value in figure.items() if name in names}
        )
        for figure in json.loads(record.read_text())["figures"]
    ]


def stated(lines: list[str]) -> list[measure.Figure]:
    """Return the figures of lines that name a goal."""
    return [
        measure.Figure(
            match["name"],
            number(match["value"]),
            match["unit"],
            cast("measure.Bound", match["bound"]),
            number(match["target"]),
        )
        for line in lines
        if (match := GOAL.match(line))
    ]


def number(text: str) -> float:
    """Return what a person wrote as a number."""
    return float(text.replace(",", ""))


if __name__ == "__main__":
    main()
