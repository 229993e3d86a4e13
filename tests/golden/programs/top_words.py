"""Finds the most frequent words: only the first rows of every task travel."""

from __future__ import annotations

import millstream as ms

LINES = ["to be or not to be", "that is the question", "to be"]

flow = ms.Flow("top-words")
words = flow.from_iterable(LINES).flat_map(str.split)
counts = words.group_by(str.lower, name="by word").count()
top = counts.sort_by(lambda pair: (-pair[1], pair[0])).limit(2).collect()
