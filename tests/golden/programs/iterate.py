"""Doubles numbers until their sum is large: rows that go round again."""

from __future__ import annotations

import millstream as ms

flow = ms.Flow("iterate")
doubled = flow.from_iterable(range(5)).iterate(
    lambda rows: rows.map(lambda i: i * 2, name="double"),
    reduce=lambda one, other: one + other,
    until=lambda total: total > 100,
    max_rounds=10,
)
doubled.collect(name="numbers")
