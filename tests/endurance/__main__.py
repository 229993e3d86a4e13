"""Run the five endless jobs together, kill workers, and fail if anything rises.

    python -m tests.endurance --minutes 30           (or: make endure MINUTES=30)

Samples, verdicts and a plot go to a directory that is named at the end.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tests.endurance.enduring import Plan, endured
from tests.endurance.flows import JOBS
from tests.endurance.plotting import plot


def main() -> int:
    """Return 1 if something rose or went wrong."""
    parser = argparse.ArgumentParser(description="Run endless jobs and look at slopes.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--out", type=Path, default=Path("artifacts/endure"))
    parser.add_argument("--no-spark", action="store_true", help="processes only")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    has_spark = not options.no_spark and shutil.which("java") is not None
    plan = Plan(
        options.out,
        options.minutes * 60,
        options.jobs,
        options.keys,
        has_spark=has_spark,
    )
    outcome = endured(plan, say=lambda line: print(line, flush=True))  # noqa: T201
    plot(outcome.samples, outcome.kills, plan.warm_up_s, options.out / "endure.png")
    lines = [*map(str, outcome.verdicts), *outcome.problems]
    (options.out / "verdicts.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))  # noqa: T201
    print(f"plot and verdicts are in {options.out}")  # noqa: T201
    return int(outcome.is_bad)


if __name__ == "__main__":
    sys.exit(main())
