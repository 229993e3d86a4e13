"""Rows found by the hashes of their keys, against a scan."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millstream.operators.frames.hash_lookup import HashLookup, hashes_of

HASHES = st.lists(st.integers(0, 5) | st.sampled_from([2**63, 2**64 - 1]))


@given(kept=HASHES, wanted=HASHES)
def test_look_up_finds_what_a_scan_finds(kept: list[int], wanted: list[int]) -> None:
    """All rows of the wanted hashes and no others, those of one hash in their order."""
    lookup = HashLookup(np.array(kept, np.uint64))
    found = lookup.places(np.unique(np.array(wanted, np.uint64))).tolist()

    assert found == [
        place
        for each in sorted(set(wanted))
        for place, own in enumerate(kept)
        if own == each
    ]


def test_rows_of_the_same_keys_have_the_same_hash() -> None:
    """Whatever else is in them, and whichever frame they are in; null is a key too."""
    left = pl.DataFrame({"k": [1, None, 3], "s": ["a", None, "c"], "x": [1, 2, 3]})
    right = pl.DataFrame({"s": ["c", None], "k": [3, None]})

    hashes = hashes_of(left, ["k", "s"])

    assert hashes_of(right, ["k", "s"]).tolist() == [hashes[2], hashes[1]]
