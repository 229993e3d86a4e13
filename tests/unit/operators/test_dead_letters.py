"""The budget of dead letters is one number for the whole job, also over restarts."""

from __future__ import annotations

import pytest
from tests.support.making import operators

from millstream.operators.dead_letters import DeadLetter, DeadLetterLimitOperator
from millstream.plan.nodes import DeadLetterLimit
from millstream.protocol.ids import Epoch

LETTER = DeadLetter("x" * 500, "ValueError: no", "map", "record 3 of a.txt")


def counted() -> DeadLetterLimitOperator:
    (operator,) = operators([DeadLetterLimit(3)])
    assert isinstance(operator, DeadLetterLimitOperator)
    return operator


def test_letters_from_before_a_snapshot_count() -> None:
    """A job that is restarted often must not lose more than it may."""
    before, after = counted(), counted()
    before.process([LETTER] * 2)
    assert before.state is not None
    assert after.state is not None
    capture = before.state.capture(Epoch(1), since=Epoch(0))
    after.state.restore(capture.segments("budget", 0), (0, 1024))

    assert after.process([LETTER]) == []
    with pytest.raises(ValueError, match="more than max_dead_letters=3 dead letters"):
        after.process([LETTER])


def test_a_letter_as_text_is_short_and_complete() -> None:
    """It ends up in the message of an error."""
    text = str(LETTER)

    assert text.startswith("map raised ValueError: no; record 3 of a.txt, value 'xxx")
    assert text.endswith("x…")
    assert len(text) < 300
