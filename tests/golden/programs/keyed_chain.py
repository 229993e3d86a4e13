"""Keeps working on keys: no verb after `key_by` moves data."""

from __future__ import annotations

import millstream as ms

READINGS = [("a", 3), ("b", 4), ("a", 5), ("b", 10), ("a", 4)]

flow = ms.Flow("keyed-chain")
readings = flow.from_iterable(READINGS).key_by(lambda reading: reading[0])
steps = readings.map(lambda reading: reading[1]).map_with_state(
    0, lambda last, value: (value, value - last)
)
rows = steps.filter(lambda step: step > 0).unkey().collect()
