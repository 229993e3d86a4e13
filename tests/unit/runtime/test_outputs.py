"""The output channels of a task, taken together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.making import channel

from millstream.config import fixed
from millstream.protocol.barrier import ROUND_END, Hops
from millstream.runtime.channels import InputChannel, LocalCarrier, OutputChannel
from millstream.runtime.outputs import Outputs
from millstream.runtime.router import Router

if TYPE_CHECKING:
    from millstream.plan.physical import Channel


def pair(of: Channel, credit: int = 9) -> tuple[OutputChannel, InputChannel]:
    reader = InputChannel(of)
    writer = OutputChannel(of, LocalCarrier(reader, credit), lambda *_: None)
    reader.tell_closed = writer.close
    return writer, reader


def test_marks_of_a_loop_leave_it_nowhere() -> None:
    """Who reads what leaves the loop knows nothing of rounds."""
    made = channel()
    inside, within = pair(replace(made, edge=replace(made.edge, carries_rounds=True)))
    outside, without = pair(made)
    outputs = Outputs([[Router([inside]), Router([outside])], []], None)

    outputs.put_mark(0, Hops(2))
    outputs.put_mark(1, ROUND_END)

    assert [within.take() for _ in range(len(within))] == [Hops(2)]
    assert len(without) == 0


def test_rows_that_wait_for_credit_leave_when_it_is_back() -> None:
    """Nothing else is taken before."""
    writer, reader = pair(channel(buffer=fixed(1)), credit=1)
    outputs = Outputs([[Router([writer])]], None)
    for number in range(2):
        writer.put([number], 0)

    was_flushed = outputs.flush()
    first = reader.take()

    assert (was_flushed, outputs.flush()) == (False, True)
    assert [first, reader.take()] == [[0], [1]]


def test_outputs_are_abandoned_when_all_readers_have_closed() -> None:
    """But a head of a loop that closes may wait for a barrier; who reads nothing cannot."""
    made = channel()
    (first, reads_first), (second, reads_second) = pair(made), pair(made)
    back, reads_back = pair(replace(made, edge=replace(made.edge, is_back=True)))
    outputs = Outputs([[Router([first, second])]], None)
    looped = Outputs([[Router([back])]], None)

    reads_first.close()
    was_abandoned = outputs.are_abandoned
    reads_second.close()
    reads_back.close()

    assert (was_abandoned, outputs.are_abandoned) == (False, True)
    assert not looped.are_abandoned
    assert not Outputs([[]], None).are_abandoned
