"""Count everything that packages need, directly or not, in three releases.

What it shows: an iteration inside an iteration.  The inner one follows dependencies until
six rounds have found all of them; the outer one does that for every release, and its state
tells the inner one which release that is.

    millstream run examples/transitive_closure.py --on local --workers 2
"""

from __future__ import annotations

import millstream as ms

NEEDS = {"app": ["web", "db"], "web": ["http"], "http": ["tls"], "db": ["tls"]}
ADDED = {1: ("tls", "math"), 2: ("math", "bits")}
RELEASES = 3
Pair = tuple[str, str]


def followed(pair: Pair, release: int) -> list[Pair]:
    """Return a dependency, and those that follow from it in a release."""
    package, needed = pair
    added = [b for since, (a, b) in ADDED.items() if since <= release and a == needed]
    return [pair, *((package, more) for more in NEEDS.get(needed, []) + added)]


def closed(pairs: ms.Stream[Pair], counts: ms.RoundState[list[int]]) -> ms.Stream[Pair]:
    """Follow dependencies in the release whose turn it is."""
    return pairs.iterate(
        lambda known: known.flat_map(lambda p: followed(p, len(counts.value))).unique(),
        max_rounds=6,
    )


flow = ms.Flow("transitive-closure")
direct = flow.from_iterable([(a, b) for a, needed in NEEDS.items() for b in needed])
counts = direct.cycle(
    [], closed, lambda counts, found: [*counts, len(found)], max_rounds=RELEASES
).collect()

if __name__ == "__main__":
    flow.run()
    for release, count in enumerate(counts.result()[0]):
        print(f"release {release}: {count} dependencies")
