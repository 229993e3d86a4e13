"""Halves numbers until they are small: a loop without rounds, which moves rows."""

from __future__ import annotations

import millstream as ms


def halved(rows: ms.Stream[int]) -> tuple[ms.Stream[int], ms.Stream[int]]:
    """Send large numbers round again, and small ones out."""
    half = rows.shuffle(name="spread").map(lambda i: i // 2, name="halve")
    return half.filter(lambda i: i > 10, name="large"), half.filter(
        lambda i: i <= 10, name="small"
    )


flow = ms.Flow("free_loop")
flow.from_iterable([100, 7, 64]).loop(halved, max_hops=9).collect(name="numbers")
