"""Lets streams meet: merged where they are, zipped in one task."""

from __future__ import annotations

import millstream as ms

flow = ms.Flow("meeting")
small = flow.from_iterable([1, 2, 3], name="small")
large = flow.from_iterable([10, 20, 30], name="large")
small.merge(large).unique().collect(name="all")
small.zip(large).collect(name="pairs")
