"""Who gives way at a crowded door, for any sequence of comings, greetings and goings."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.half_open import HalfOpen

TOTAL_MAX, ADDRESS_MAX = 6, 4
HONEST, HOSTILE = "10.0.0.1", "10.6.6.6"

steps = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "greet", "leave"]),
        st.integers(0, 20),
        st.sampled_from([HONEST, HOSTILE, "10.0.0.3"]),
    ),
    max_size=60,
)


@given(steps=steps, seed=st.integers(0, 1000))
def test_limits_hold_and_the_silent_give_way_first(
    steps: list[tuple[str, int, str]], seed: int
) -> None:
    """A model of sets beside it: who is dropped was there, and had said least."""
    waiting: HalfOpen[int] = HalfOpen(
        TOTAL_MAX, ADDRESS_MAX, choose=Random(seed).choice
    )
    address_of: dict[int, str] = {}
    greeted: set[int] = set()
    for number, (what, pick, address) in enumerate(steps):
        known = sorted(address_of)
        chosen = known[pick % len(known)] if known else -1
        if what == "come":
            victim = waiting.admit(number, address)
            counts = Counter(address_of.values())
            is_crowded = counts[address] >= ADDRESS_MAX or len(known) >= TOTAL_MAX
            assert (victim is not None) == is_crowded
            if victim is not None:
                crowd = address_of.pop(victim)
                own = counts[address] >= ADDRESS_MAX
                assert counts[crowd] == (
                    counts[address] if own else max(counts.values())
                )
                assert crowd == address or not own
                others = {k for k, a in address_of.items() if a == crowd}
                assert victim not in greeted or others <= greeted
            address_of[number] = address
        elif what == "greet":
            waiting.greet(chosen)
            greeted.add(chosen)
        else:
            waiting.remove(chosen)
            address_of.pop(chosen, None)
        waiting.validate()
        assert len(waiting) == len(address_of) <= TOTAL_MAX
        assert max(Counter(address_of.values()).values(), default=0) <= ADDRESS_MAX


@given(st.integers(0, 1000))
def test_a_member_that_spoke_is_not_displaced_by_strangers_that_do_not(
    seed: int,
) -> None:
    """However many come from its own address and how old it is."""
    waiting: HalfOpen[str] = HalfOpen(64, 32, choose=Random(seed).choice)
    waiting.admit("member", HONEST)
    waiting.greet("member")

    dropped = [waiting.admit(f"stranger {i}", HONEST) for i in range(1000)]

    assert "member" not in dropped


def test_one_host_does_not_displace_another() -> None:
    """Even a silent connection stays while somebody else holds more places."""
    waiting: HalfOpen[str] = HalfOpen(64, 48, choose=Random(0).choice)
    waiting.admit("member", HONEST)

    dropped = [waiting.admit(f"stranger {i}", HOSTILE) for i in range(1000)]

    assert "member" not in dropped


def test_a_silent_member_among_strangers_of_its_host_often_stays() -> None:
    """With the oldest first it would never survive as many newcomers as there are places."""
    stayed = 0
    for seed in range(100):
        waiting: HalfOpen[str] = HalfOpen(64, 64, choose=Random(seed).choice)
        for i in range(64):
            waiting.admit(f"early {i}", HONEST)
        waiting.admit("member", HONEST)
        dropped = {waiting.admit(f"late {i}", HONEST) for i in range(64)}
        stayed += "member" not in dropped

    assert 20 < stayed < 60
