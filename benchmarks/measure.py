"""What every benchmark shares: rounds, medians, targets, tables and the record kept.

A benchmark runs its contestants in turn, round after round, checks what they computed,
and ends with `finish`, which prints the samples and the figures and writes both, with
the machine and the versions, to ``benchmarks/results/<name>.json``.

Nothing here knows what is measured or starts a flow.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import generate_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "Figure",
    "Report",
    "arguments",
    "at_least",
    "at_most",
    "check",
    "finish",
    "interleaved",
    "print_figures",
    "print_table",
    "timed",
    "written_text",
]

T = TypeVar("T")

RESULTS = Path(__file__).parent / "results"
ROUNDS = 3
TEXT_SEED = 7
PACKAGES = ("millstream", "pyspark", "pyarrow", "numpy", "polars", "cloudpickle")

Bound = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, and the target it has to meet where it has one."""

    name: str
    value: float
    unit: str
    bound: Bound | None = None
    target: float | None = None

    @property
    def verdict(self) -> str:
        """Return the word for the last column of a table."""
        if self.target is None:
            return ""
        is_above = self.value >= self.target
        is_met = is_above if self.bound == "at least" else self.value <= self.target
        return "met" if is_met else "missed"

    @property
    def cells(self) -> tuple[str, ...]:
        """Return its row of the table of figures."""
        if self.target is None:
            return self.name, shown(self.value, self.unit), "", ""
        target = f"{self.bound} {shown(self.target, self.unit)}"
        return self.name, shown(self.value, self.unit), target, self.verdict


def at_least(name: str, value: float, unit: str, target: float) -> Figure:
    """Return a figure that must not be smaller than its target."""
    return Figure(name, value, unit, "at least", target)


def at_most(name: str, value: float, unit: str, target: float) -> Figure:
    """Return a figure that must not be larger than its target."""
    return Figure(name, value, unit, "at most", target)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything one benchmark has found out.

    Attributes
    ----------
    sizes
        How much was processed, by name with the unit in it.
    samples
        One number per round of every contestant, in `samples_unit`.
    """

    name: str
    is_quick: bool
    sizes: Mapping[str, int]
    samples_unit: str
    samples: Mapping[str, Sequence[float]]
    figures: Sequence[Figure]


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description.partition("\n")[0],
        epilog="Results are also written to benchmarks/results/.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: a smoke test, not a figure"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"rounds (default: {ROUNDS})"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("~/.cache/millstream-bench").expanduser(),
        help="where generated text is kept (default: %(default)s)",
    )
    return parser


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return how many seconds `work` took, and what it returned."""
    started_ns = time.perf_counter_ns()
    result = work()
    return (time.perf_counter_ns() - started_ns) / 1e9, result


def interleaved(
    rounds: int, contestants: Iterable[str], sample: Callable[[str], float]
) -> dict[str, list[float]]:
    """Take a sample of each contestant in turn, `rounds` times; return them all."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, taken in samples.items():
            say(f"round {number + 1} of {rounds}: {name}")
            taken.append(sample(name))
    say("")
    return samples


def check(contestant: str, found: object, expected: object) -> None:
    """End the benchmark if a contestant computed something else than expected."""
    if found != expected:
        msg = (
            f"{contestant} computed {found}, expected {expected}; times of wrong "
            "results mean nothing, so none is printed"
        )
        raise SystemExit(msg)


def finish(report: Report) -> None:
    """Print samples and figures, and write the report to its file."""
    sizes = ", ".join(f"{value:,} {name}" for name, value in report.sizes.items())
    title = f"{report.name}: {sizes}" + (" (quick)" if report.is_quick else "")
    print(f"\n{title}")
    print_table(
        ("contestant", "median", "rounds"),
        [
            (
                name,
                shown(statistics.median(samples), report.samples_unit),
                " ".join(shown(sample, "") for sample in samples),
            )
            for name, samples in report.samples.items()
        ],
    )
    print_figures(report.figures)
    RESULTS.mkdir(exist_ok=True)
    figures = [
        asdict(figure) | {"verdict": figure.verdict} for figure in report.figures
    ]
    record = asdict(report) | {"figures": figures, "machine": machine()}
    target = RESULTS / f"{report.name}.json"
    target.write_text(json.dumps(record, indent=2) + "\n")


def print_figures(figures: Sequence[Figure]) -> None:
    """Print every figure with its target and whether it was met."""
    print_table(
        ("figure", "measured", "target", ""), [figure.cells for figure in figures]
    )


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text in columns."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    print()
    for row in (head, rule, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def shown(value: float, unit: str) -> str:
    """Return a number with about three digits, and its unit."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2  # noqa: PLR2004
    return f"{value:,.{digits}f} {unit}".rstrip()


def say(text: str) -> None:
    """Show on a terminal what is going on, on a line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def written_text(directory: Path, size_bytes: int) -> Path:
    """Return generated text of about this size, made now if it was not made before.

    The generator's source is part of the name: a changed generator makes a new file.
    """
    source = Path(generate_text.__file__).read_bytes()
    version = hashlib.sha256(source).hexdigest()[:8]
    name = f"text-{size_bytes // 1_000_000}MB-{TEXT_SEED}-{version}.txt"
    target = directory.expanduser() / name
    if not target.exists():
        say(f"generating {target}")
        generate_text.generate(target, size_bytes, TEXT_SEED)
    return target


def machine() -> dict[str, Any]:
    """Return what somebody needs to know to judge the figures."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
        ),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _cpu() -> str:
    """Return the name of the processor, where Linux tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if "model name" in line)
    return next(names, platform.machine())
