"""Rank the pages of a small web by who links to them.

What it shows: `cycle` with a state that every worker sees, and an aggregate by key inside
of every round.

    millstream run examples/page_rank.py --on local --workers 2
"""

from __future__ import annotations

import millstream as ms

DAMPING = 0.85
LINKS = {
    "home": ["about", "docs", "blog"],
    "about": ["home"],
    "docs": ["home", "install"],
    "install": ["docs"],
    "blog": ["home", "docs", "about"],
}
Ranks = dict[str, float]


def shares(link: tuple[str, list[str]], ranks: Ranks) -> list[tuple[str, float]]:
    """Return what a page gives to each page that it links to."""
    page, targets = link
    return [(target, ranks[page] / len(targets)) for target in targets]


def ranked(ranks: Ranks, received: list[tuple[str, float]]) -> Ranks:
    """Return the new rank of every page."""
    base = (1 - DAMPING) / len(ranks)
    return dict.fromkeys(ranks, base) | {
        page: base + DAMPING * share for page, share in received
    }


def body(links: ms.Stream, ranks: ms.RoundState[Ranks]) -> ms.Stream:
    """Add up what every page receives in a round."""
    given = links.flat_map(lambda link: shares(link, ranks.value))
    return given.group_by(lambda pair: pair[0], value=lambda pair: pair[1]).sum()


flow = ms.Flow("page-rank")
links = flow.from_iterable(LINKS.items())
even = dict.fromkeys(LINKS, 1 / len(LINKS))
result = links.cycle(even, body, ranked, max_rounds=30).collect()

if __name__ == "__main__":
    flow.run()
    for page, rank in sorted(result.result()[0].items(), key=lambda pair: -pair[1]):
        print(f"{page:8} {rank:.4f}")
