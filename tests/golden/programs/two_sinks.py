"""Reads a stream twice: what follows begins a stage of its own, on the same worker."""

from __future__ import annotations

import millstream as ms

flow = ms.Flow("two-sinks", buffer=ms.fixed(64))
numbers = flow.from_parallel(lambda rank, size: range(rank, 6, size)).map(abs)
numbers.filter(lambda i: i % 2).collect(name="odd")
numbers.filter(lambda i: i % 2 == 0).collect(name="even")
