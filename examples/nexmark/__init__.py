"""NEXMark: an auction site as a stream of people, auctions and bids, and eleven queries.

Every file has one idea, like the other examples:

- `events`: what a person, an auction and a bid are
- `market`: makes them up, the same ones for the same seed
- `rowwise`, `joins`, `windows`, `winning`: the queries
- `oracle`, `oracle_windows`: the same answers from a list, in plain Python

From the root of the repository:

    python -m examples.nexmark q5
"""
