"""An iteration inside another: halves what is even, then adds one, three times."""

from __future__ import annotations

import millstream as ms


def halved(rows: ms.Stream[int]) -> ms.Stream[int]:
    """Halve even numbers."""
    return rows.map(lambda i: i // 2 if i % 2 == 0 else i, name="halve")


flow = ms.Flow("nested_iterate")
numbers = flow.from_iterable([3, 8, 40, 100]).iterate(
    lambda rows: rows.iterate(halved, max_rounds=2, name="inner").map(
        lambda i: i + 1, name="next"
    ),
    max_rounds=3,
    name="outer",
)
numbers.collect(name="numbers")
