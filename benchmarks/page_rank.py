"""PageRank of a power-law graph with a million edges: `cycle` against PySpark's RDDs.

Twenty rounds with fixed damping.  The RDD program is the one of Spark's own examples: links
grouped by page and cached, joined with the ranks in every round.  Millstream's keeps the
edges as a data frame in its workers and shows all ranks to them in every round, as an array.

Ranks must be those that NumPy finds in one process, within 1e-9.

    python benchmarks/page_rank.py [--quick]
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import measure
import numpy as np
import polars as pl
import word_count

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Ranks = np.ndarray[tuple[int], np.dtype[np.float64]]

WORKERS, ROUNDS, DAMPING = 2, 20, 0.85
FULL_EDGES, QUICK_EDGES = 1_000_000, 20_000
OWN, RDD = "Millstream", "PySpark RDD"
TOLERANCE = 1e-9
SHARES = {"target": pl.Int64, "share": pl.Float64}


@dataclass(frozen=True, slots=True)
class Graph:
    """Edges by the number of their ends; every page has links."""

    sources: Any
    targets: Any
    pages: int

    @property
    def degrees(self) -> Any:
        """How many links every page has."""
        return np.bincount(self.sources, minlength=self.pages)


def power_law(edges: int) -> Graph:
    """Return a graph in which few pages have most of the links; the same each time."""
    rng = np.random.default_rng(edges)
    pages = edges // 10
    popular = rng.zipf(1.6, edges) % pages
    sources = np.concatenate([np.arange(pages), rng.integers(0, pages, edges - pages)])
    return Graph(sources, popular, pages)


def by_millstream(spark: SparkSession, graph: Graph) -> Ranks:
    """Cycle over the edges, with all ranks as the state."""

    def shares(state: ms.RoundState[Ranks]) -> Any:
        def given(edges: pl.DataFrame) -> pl.DataFrame:
            share = state.value[edges["source"].to_numpy()] * edges["weight"].to_numpy()
            totals = np.bincount(edges["target"].to_numpy(), share)
            (targets,) = totals.nonzero()
            return pl.DataFrame(
                {"target": targets, "share": totals[targets]}, schema=SHARES
            )

        return given

    def ranked(ranks: Ranks, shares: pl.DataFrame) -> Ranks:
        received = np.bincount(
            shares["target"].to_numpy(), shares["share"].to_numpy(), len(ranks)
        )
        return (1 - DAMPING) / len(ranks) + DAMPING * received

    flow = ms.Flow("page-rank")
    edges = pl.DataFrame(
        {
            "source": graph.sources,
            "target": graph.targets,
            "weight": 1 / graph.degrees[graph.sources],
        }
    )
    result = flow.from_frame(edges).cycle(
        np.full(graph.pages, 1 / graph.pages),
        lambda edges, ranks: edges.map_batches(shares(ranks), schema=SHARES),
        ranked,
        max_rounds=ROUNDS,
    )
    handle = result.collect()
    flow.run(spark=spark, workers=WORKERS)
    ranks: Ranks = handle.result()[0]
    return ranks


def by_rdd(spark: SparkSession, graph: Graph) -> Ranks:
    """Join links with ranks in every round, as Spark's example does."""
    pairs = list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    links = spark.sparkContext.parallelize(pairs, WORKERS).groupByKey(WORKERS).cache()
    pages = graph.pages
    ranks = links.mapValues(lambda _: 1 / pages)

    def shares(pair: Any) -> Any:
        targets, rank = pair
        share = rank / len(targets)
        return [(target, share) for target in targets]

    for _ in range(ROUNDS):
        given = links.join(ranks, WORKERS).values().flatMap(shares)
        added = given.reduceByKey(lambda a, b: a + b, WORKERS)
        ranks = links.mapValues(lambda _: 0.0).leftOuterJoin(added, WORKERS)
        ranks = ranks.mapValues(
            lambda pair: (1 - DAMPING) / pages + DAMPING * (pair[1] or 0.0)
        )
    found = np.zeros(pages)
    for page, rank in ranks.collect():
        found[page] = rank
    links.unpersist()
    return found


def by_numpy(graph: Graph) -> Ranks:
    """Return what all must find."""
    weights = 1 / graph.degrees[graph.sources]
    ranks = np.full(graph.pages, 1 / graph.pages)
    for _ in range(ROUNDS):
        share = ranks[graph.sources] * weights
        received = np.bincount(graph.targets, share, graph.pages)
        ranks = (1 - DAMPING) / graph.pages + DAMPING * received
    return ranks


def main() -> None:
    """Measure both."""
    options = measure.arguments(__doc__ or "").parse_args()
    graph = power_law(QUICK_EDGES if options.quick else FULL_EDGES)
    expected = by_numpy(graph)
    spark = word_count.session(memory="4g")
    programs: dict[str, Callable[[Graph], Ranks]] = {
        OWN: lambda graph: by_millstream(spark, graph),
        RDD: lambda graph: by_rdd(spark, graph),
    }

    def seconds(name: str) -> float:
        taken, ranks = measure.timed(lambda: programs[name](graph))
        assert np.allclose(ranks, expected, rtol=0, atol=TOLERANCE), name
        return taken

    try:
        small = power_law(QUICK_EDGES)
        for program in programs.values():
            program(small)
        samples = measure.interleaved(options.rounds, programs, seconds)
    finally:
        spark.stop()
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    ratio = medians[RDD] / medians[OWN]
    measure.finish(
        measure.Report(
            name="page_rank",
            is_quick=options.quick,
            sizes={"edges": len(graph.sources), "rounds": ROUNDS, "workers": WORKERS},
            samples_unit="s",
            samples=samples,
            figures=[measure.at_least("faster than the RDD", ratio, "x", 5)],
        )
    )


if __name__ == "__main__":
    main()
