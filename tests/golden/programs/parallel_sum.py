"""Adds numbers that every worker makes itself: one number per worker travels."""

from __future__ import annotations

import millstream as ms

flow = ms.Flow("parallel-sum")
numbers = flow.from_parallel(lambda rank, size: range(rank, 100, size))
total = numbers.map(lambda i: 2 * i).sum()
