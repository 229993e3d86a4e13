"""Run one query on two workers of this process, and check it against its oracle.

python -m examples.nexmark QUERY [EVENTS]
"""

from __future__ import annotations

import sys
from collections import Counter

from examples.nexmark.market import Market
from examples.nexmark.queries import ORACLES, QUERIES, timed

import millstream as ms

SHOWN = 3


def main() -> None:
    """Print the first rows, and whether all are as they should be."""
    name = sys.argv[1] if len(sys.argv) > 1 else "q5"
    if name not in QUERIES:
        sys.exit(f"there is no query {name!r}; there are {', '.join(QUERIES)}")
    market = Market(int(sys.argv[2]) if len(sys.argv) > 2 else 5_000)  # noqa: PLR2004
    flow = ms.Flow(name)
    found = QUERIES[name](timed(flow, market)).collect()
    flow.run(on="local", workers=2)
    rows = found.result()
    for row in sorted(rows)[:SHOWN]:
        print(row)
    expected = ORACLES[name](list(market(0, 1)))
    print(f"{len(rows):,} rows; as expected: {Counter(rows) == Counter(expected)}")


if __name__ == "__main__":
    main()
