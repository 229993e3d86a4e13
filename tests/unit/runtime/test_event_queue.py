"""EventQueue: one event after the other, whoever brings them."""

from __future__ import annotations

import pytest

from millstream.runtime.event_queue import EventQueue


def test_event_that_comes_while_another_is_handled_waits() -> None:
    """Otherwise what follows from the first would be done behind what follows from it."""
    done: list[str] = []

    def handle(number: int) -> None:
        done.append(f"{number} begins")
        if number < 3:
            queue.put(number + 1)
            queue.put(number + 2)
        done.append(f"{number} ends")

    queue = EventQueue(handle)
    queue.put(1)

    order = [1, 2, 3, 3, 4]
    assert done == [f"{n} {what}" for n in order for what in ("begins", "ends")]


def test_event_that_cannot_be_handled_loses_no_other() -> None:
    """The error leaves; what waited is handled with the next event, and before it."""
    done: list[int] = []

    def handle(number: int) -> None:
        if number == 1:
            queue.put(2)
            msg = "broken"
            raise ValueError(msg)
        done.append(number)

    queue = EventQueue(handle)
    with pytest.raises(ValueError, match="broken"):
        queue.put(1)
    queue.put(3)

    assert done == [2, 3]
