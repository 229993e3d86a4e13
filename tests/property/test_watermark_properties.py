"""EventTime: a task promises the least that its inputs have promised.

Method: Hypothesis draws what inputs say, in any order; the oracle keeps the history of
every input and looks at all of it after every step.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.watermark import BEGINNING, EventTime, Watermark

INPUTS = "abc"
STEPS = st.lists(
    st.tuples(
        st.sampled_from(INPUTS),
        st.one_of(st.builds(Watermark, st.integers(-20, 20), st.booleans()), st.none()),
    ),
    max_size=30,
)


@given(STEPS)
def test_time_is_the_least_promise_of_those_who_are_awake(
    steps: list[tuple[str, Watermark | None]],
) -> None:
    """Idle inputs hold nobody back, ended ones do not count, and time never falls."""
    time = EventTime(INPUTS)
    said: dict[str, list[Watermark]] = {source: [] for source in INPUTS}
    before = BEGINNING
    for source, watermark in steps:
        if source not in said:
            continue
        if watermark is None:
            time.end(source)
            del said[source]
        else:
            time.note(source, watermark)
            said[source].append(watermark)
        time.validate()
        highest = {
            i: max((w.time for w in history), default=BEGINNING)
            for i, history in said.items()
        }
        awake = [
            i for i, history in said.items() if not history or not history[-1].is_idle
        ]
        if awake:
            before = max(before, min(highest[i] for i in awake))
        elif said:
            before = max(before, *highest.values())
        is_idle = bool(said) and not awake

        assert time.watermark == Watermark(before, is_idle)
