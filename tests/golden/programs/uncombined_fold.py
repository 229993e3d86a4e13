"""Folds without a merge: nothing can be combined, so all rows move."""

from __future__ import annotations

import millstream as ms

flow = ms.Flow("uncombined-fold")
groups = flow.from_iterable(range(10)).group_by(lambda i: i % 3)
folded = groups.fold(0, lambda total, i: total + i).collect()
