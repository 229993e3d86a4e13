"""Aggregates the same groups twice: they move once for each, uncombined."""

from __future__ import annotations

import millstream as ms

flow = ms.Flow("shared-groups")
groups = flow.from_iterable(range(10)).group_by(lambda i: i % 2)
groups.count().collect(name="counts")
groups.mean().collect(name="means")
