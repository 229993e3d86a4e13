"""Counts rows by what the state says, in every round: a cycle whose body moves rows."""

from __future__ import annotations

import millstream as ms


def counts(
    rows: ms.Stream[int], divisor: ms.RoundState[int]
) -> ms.Stream[tuple[int, int]]:
    """Count by the rest of a division by the state."""
    return rows.group_by(lambda i: i % divisor.value, name="rest").count()


flow = ms.Flow("cycle_with_shuffle")
divisor = flow.from_iterable(range(20)).cycle(
    2,
    counts,
    update=lambda divisor, rests: divisor + len(rests),
    max_rounds=3,
)
divisor.collect(name="divisor")
