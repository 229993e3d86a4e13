"""Counts words: the counts are combined before they move."""

from __future__ import annotations

import millstream as ms

LINES = ["to be or not to be", "that is the question", "to be"]

flow = ms.Flow("word-count")
words = flow.from_iterable(LINES, name="lines").flat_map(str.split)
counts = words.group_by(str.lower).count().collect()
