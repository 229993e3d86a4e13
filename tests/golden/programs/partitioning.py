"""Says where rows go: shuffle, broadcast, by number, and at most two tasks."""

from __future__ import annotations

import millstream as ms

flow = ms.Flow("partitioning")
rows = flow.from_iterable(range(8)).shuffle(name="deal").map(lambda i: i + 1)
rows = rows.repartition_by(lambda i: i).max_parallelism(2).map(lambda i: -i)
rows.buffered(ms.adaptive(16, "5ms")).shuffle(name="deal again").collect()
