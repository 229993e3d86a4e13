"""Limits a stream: every task stops early, and one task counts for all."""

from __future__ import annotations

import millstream as ms

flow = ms.Flow("limit-everywhere")
numbers = flow.from_parallel(lambda rank, size: [7] * 1_000)
few = numbers.map(lambda i: i + 1).limit(3).collect()
