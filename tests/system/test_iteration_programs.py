"""The iterative examples find what independent programs find.

Every example is loaded and run here with its own data; beside it stands the textbook's way
to the same result, which shares nothing with it.
"""

from __future__ import annotations

import heapq
import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(name: str, *, workers: int = 3) -> dict[str, Any]:
    """Return the names of an example whose flow has run."""
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    # Rows of its classes can only be pickled if it can be found.
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.flow.run(on="local", workers=workers)
    return vars(module)


def test_k_means_ends_where_lloyds_algorithm_ends() -> None:
    """With the same first centres, on the same points, with whole arrays."""
    found = ran("k_means")

    points = found["scattered"]().to_numpy()
    centres = np.array([(-1.0, 0.0), (0.0, 0.0), (1.0, 0.0)])
    for _ in range(20):
        away = np.linalg.norm(points[:, None] - centres[None], axis=2)
        nearest = away.argmin(axis=1)
        centres = np.array([points[nearest == c].mean(axis=0) for c in range(3)])
    (result,) = found["centres"].result()
    assert np.allclose(result, centres, rtol=0, atol=1e-6)


def test_page_ranks_are_the_stationary_vector() -> None:
    """By powers of the matrix of links, which thirty rounds come close to."""
    found = ran("page_rank")

    links, damping = found["LINKS"], found["DAMPING"]
    pages = list(links)
    matrix = np.full((len(pages), len(pages)), (1 - damping) / len(pages))
    for source, targets in links.items():
        for target in targets:
            matrix[pages.index(target), pages.index(source)] += damping / len(targets)
    ranks = np.linalg.matrix_power(matrix, 30) @ np.full(len(pages), 1 / len(pages))
    (result,) = found["result"].result()
    assert [result[page] for page in pages] == pytest.approx(list(ranks), abs=1e-12)


def test_distances_are_those_of_dijkstra() -> None:
    """With a heap, town by town."""
    found = ran("shortest_paths")

    roads = found["ROADS"].rows()
    known: dict[str, int] = {}
    heap = [(0, "mill")]
    while heap:
        km, town = heapq.heappop(heap)
        if town not in known:
            known[town] = km
            for start, end, more in roads:
                if start == town:
                    heapq.heappush(heap, (km + more, end))
    assert dict(found["distances"].result().rows()) == known


def test_weights_are_those_of_gradient_descent_in_one_piece() -> None:
    """As many steps, with all examples in one array."""
    found = ran("logistic_regression")

    rows = found["labelled"]().to_numpy()
    features, wanted = rows[:, :3], rows[:, 3]
    weights, step = np.zeros(3), np.ones(3)
    while np.abs(step).max() >= found["ENOUGH"]:
        guessed = 1 / (1 + np.exp(-features @ weights))
        step = found["RATE"] * (wanted - guessed) @ features / len(rows)
        weights = weights + step
    (model,) = found["learned"].result()
    assert np.allclose(model.weights, weights, rtol=0, atol=1e-9)


def test_every_message_is_tried_as_often_as_its_luck_says() -> None:
    """Whatever the order in which they come round."""
    found = ran("retry_with_backoff")

    counts: dict[int, int] = {}
    for number in range(found["MESSAGES"]):
        tries = 1
        while (
            random.Random(number * 100 + tries - 1).random() >= found["LUCK"]
            and tries < found["TRIES_MAX"]
        ):
            tries += 1
        counts[tries] = counts.get(tries, 0) + 1
    assert found["tries"].result() == counts


def test_closure_has_all_pairs_with_a_way_between() -> None:
    """By Warshall's algorithm, for every release."""
    found = ran("transitive_closure")

    expected = []
    for release in range(found["RELEASES"]):
        reach = {(a, b) for a, needed in found["NEEDS"].items() for b in needed}
        direct = set(reach)
        reach |= {pair for since, pair in found["ADDED"].items() if since <= release}
        for middle in {b for _, b in reach}:
            into = [a for a, b in reach if b == middle]
            reach |= {(a, b) for a in into for m, b in reach if m == middle}
        begun = {a for a, _ in direct}
        expected.append(len({(a, b) for a, b in reach if a in begun}))
    assert found["counts"].result() == [expected]


def test_components_are_those_of_a_search() -> None:
    """In rounds and as they come."""
    found = ran("connected_components")

    beside: dict[str, set[str]] = {}
    for one, other in found["beside"]:
        beside.setdefault(one, set()).add(other)
    expected = {}
    for person in beside:
        seen, left = {person}, [person]
        while left:
            new = beside[left.pop()] - seen
            seen |= new
            left += new
        expected[person] = min(seen)
    assert dict(found["in_rounds"].result()) == expected
    said = dict(line.split() for line in found["as_they_come"].result())
    assert said == expected
