"""Play random programs until one goes wrong or time is up: ``make fuzz``.

::

    python -m tests.fuzz                     until something goes wrong
    python -m tests.fuzz --minutes 30        for so long
    python -m tests.fuzz --seed 4711         the scenarios of this seed
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context
from random import SystemRandom

from tests.fuzz.hunting import EXAMPLES, Finding, hunt


def main() -> int:
    """Search and print what was found; 1 if anything was."""
    parser = ArgumentParser(description="Play random programs.")
    parser.add_argument("--minutes", type=float, help="for so long")
    parser.add_argument("--seed", type=int, help="only the scenarios of this seed")
    options = parser.parse_args()
    if options.seed is not None:
        return _report(hunt(options.seed))
    seconds = None if options.minutes is None else 60 * options.minutes
    return _report(_search(seconds, SystemRandom().randrange(10**6)))


def _report(finding: Finding | None) -> int:
    sys.stdout.write("all went well\n" if finding is None else f"\n{finding}\n")
    return 0 if finding is None else 1


def _search(seconds: float | None, first: int) -> Finding | None:
    """Give seed after seed to as many processes as there are processors."""
    begin = time.monotonic()
    width = os.cpu_count() or 1
    seeds, done = count(first), 0
    pool = ProcessPoolExecutor(width, get_context("spawn"))
    running: set[Future[Finding | None]] = set()
    try:
        while True:
            while len(running) < width:
                running.add(pool.submit(hunt, next(seeds)))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                if (finding := future.result()) is not None:
                    return finding
            done += EXAMPLES * len(finished)
            took = time.monotonic() - begin
            sys.stdout.write(
                f"{done} scenarios in {took:.0f} s, from seed {first} on\n"
            )
            sys.stdout.flush()
            if seconds is not None and took >= seconds:
                return None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    sys.exit(main())
