"""Stamps against a list of everything that ever came, with the epochs that have it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.ids import Epoch
from millstream.state.stamps import RESTORED, Stamps

STEPS = st.lists(st.sampled_from(["come", "store", "give up"]), max_size=20)


@given(restored=st.integers(0, 5), steps=STEPS)
def test_delta_has_what_snapshots_lack(restored: int, steps: list[str]) -> None:
    """Whichever epochs were given up, and whatever was restored before."""
    stamps = Stamps()
    epoch, complete = Epoch(restored), Epoch(restored)
    came: list[int] = [RESTORED] if restored else []
    stored: list[int] = list(came)
    for step in steps:
        if step == "come":
            came.append(stamps.now)
            continue
        epoch = Epoch(epoch + 1)
        after = stamps.after(complete)
        delta = [stamp for stamp in came if stamp > after]
        assert [*(stored if complete else []), *delta] == came
        stamps.cut(epoch)
        if step == "store":
            stored, complete = list(came), epoch
            stamps.complete(epoch)
        assert all(stamp <= stamps.stored for stamp in stored)
        assert all(stamp > stamps.stored for stamp in came[len(stored) :])


def test_stamps_of_epochs_that_are_stored_do_not_pile_up() -> None:
    """Nobody asks for a delta since an epoch before the last complete one."""
    stamps = Stamps()
    for number in range(1, 1_000):
        stamps.cut(Epoch(number))
        stamps.complete(Epoch(number))

    assert len(stamps._cut_at) == 1
