"""Run the flows with snapshots through seed after seed, until stopped: ``make soak``.

::

    python -m tests.simulation.soak            until something goes wrong
    python -m tests.simulation.soak 10000      so many seeds of every flow
    python -m tests.simulation.soak 1 41207    from this seed on
"""

from __future__ import annotations

import sys
from itertools import count

from tests.simulation.loop_flows import LOOP_CASES
from tests.simulation.recovering import TIME_CASES, pool, swarm
from tests.simulation.recovery_flows import CASES

FIRST_SEED = 1_000_000
"""Those before belong to `make test`."""
FLOWS = (*CASES, *LOOP_CASES, *TIME_CASES)
ROUND_SEEDS = 200


def main(arguments: list[str]) -> int:
    """Run rounds of seeds and print a line after each; 1 if anything went wrong."""
    seeds_max = int(arguments[0]) if arguments else None
    first = int(arguments[1]) if len(arguments) > 1 else FIRST_SEED
    with pool() as executor:
        for begin in count(0, ROUND_SEEDS):
            rest = ROUND_SEEDS if seeds_max is None else seeds_max - begin
            if rest <= 0:
                return 0
            seeds = range(first + begin, first + begin + min(rest, ROUND_SEEDS))
            failures = [f for make in FLOWS for f in swarm(executor, make, seeds)]
            done = (begin + len(seeds)) * len(FLOWS)
            sys.stdout.write(f"{done} runs, up to seed {seeds[-1]}\n")
            sys.stdout.flush()
            if failures:
                sys.stdout.write("\n".join(failures) + "\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
