"""Control messages survive the wire, and whatever is not one is refused."""

from __future__ import annotations

import pytest

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import (
    Barrier,
    Order,
    Splits,
    barrier_from_wire,
    splits_from_wire,
)
from millstream.protocol.ids import Epoch
from millstream.protocol.messages import (
    Compact,
    Compacted,
    CompleteEpoch,
    Deploy,
    Emitted,
    Ended,
    Failed,
    Finished,
    Heartbeat,
    LinkLost,
    Message,
    OpenEpoch,
    Progress,
    Ready,
    Register,
    Release,
    Resume,
    Sealed,
    Start,
    Stop,
    from_wire,
    to_wire,
)
from millstream.protocol.metrics import OutputMetrics, RoundMetrics, TaskMetrics
from millstream.protocol.shapes import unmaker

BARRIER = Barrier(Epoch(7), Epoch(5), (Order.SNAPSHOT, Order.PAUSE))
FILE = ("epochs/7/a.state", 10, "ab" * 32, ("count",))
OFFSETS = (("read", "part-0", 12, False), ("read", "part-1", 0, True))
TRANSACTIONS = (("write", b"pickled"),)
FULL = TaskMetrics(
    2,
    0,
    rows_in=1,
    blocked_ns=2,
    batches_waiting=3,
    outputs=(OutputMetrics(3, 1, 2, 8), OutputMetrics(4, 0, 0, 0, 7, 9)),
    has_time=True,
    watermark=-5,
    splits=(("part-0", -5),),
    rounds=RoundMetrics(3, 2, (0.5, "Model")),
)
FULL_TASK = unmaker(TaskMetrics)(FULL)

MESSAGES: list[Message] = [
    Register(1, "host", 7001, 42),
    Ready(1, 1),
    Heartbeat(0),
    Progress(1, 1, (TaskMetrics(0, 1, rows_in=7), FULL), 4096),
    Emitted(1, 1, 5, 0, 3, b"rows"),
    Finished(1, 1),
    Failed(1, 1, "OperatorError", "text", "map", "job.py:1", "row 0", "Traceback", b""),
    LinkLost(1, 1, 2, "reset"),
    Sealed(1, 2, 7, 0, 1, FILE, OFFSETS, TRANSACTIONS, 5, ""),
    Sealed(1, 2, 7, 0, 1, None, (), (), 5, "disk full"),
    Ended(1, 2, 7, 0, 1, OFFSETS, TRANSACTIONS),
    Compacted(1, 2, 7, 0, 1, FILE),
    Deploy(1, ((1, "a", 1), (2, "b", 2)), (1, 2, 1), (3, 7)),
    Start(1),
    OpenEpoch(2, BARRIER.to_wire()),
    CompleteEpoch(2, 7),
    Resume(2, 7),
    Compact(2, (3, 7), (0, 1)),
    Stop("enough"),
    Release(),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_message_survives_the_wire(message: Message) -> None:
    """Codecs give lists where tuples went in; the message is the same."""
    wire = to_wire(message)

    assert from_wire(wire) == message
    assert from_wire(_as_lists(wire)) == message


def _as_lists(value: object) -> object:
    if isinstance(value, tuple):
        return [_as_lists(item) for item in value]
    return value


def test_every_kind_of_message_is_tried_here() -> None:
    """A new message without a case above would go untested."""
    assert {type(m) for m in MESSAGES} == set(Message.__args__)


@pytest.mark.parametrize(
    ("wire", "complaint"),
    [
        (None, "a control message is a list of values, got NoneType"),
        ([], "a control message is a list of values"),
        ("Stop", "a control message is a list of values, got str"),
        ([99], "there is no control message with tag 99"),
        ([-1], "there is no control message with tag -1"),
        (["x"], "there is no control message with tag 'x'"),
        ([17], "Stop has 1 fields, got 0"),
        ([18, "extra"], "Release has 0 fields, got 1"),
        ([True], "there is no control message with tag True"),
        ([0, "x", 7, "port", None], "Register.worker cannot be a str"),
        ([0, 1, "host", "port", 42], "Register.port cannot be a str"),
        ([2, True], "Heartbeat.worker cannot be a bool"),
        ([2, 1.0], "Heartbeat.worker cannot be a float"),
        ([17, b"reason"], "Stop.reason cannot be a bytes"),
        ([11, 1, [[1, "a"]], [1], [0, 0]], "Deploy.members cannot be a tuple"),
        ([13, 2, [7, 5, "snapshot"]], "OpenEpoch.barrier cannot be a tuple"),
        ([13, 2, [7, 9, []]], "an epoch, an earlier epoch and orders"),
        ([3, 1, 1, [[0, 0]], 0], "Progress.tasks cannot be a tuple"),
        ([3, 1, 1, [[*FULL_TASK, 0]], 0], "Progress.tasks"),
        ([3, 1, 1, [["a", *FULL_TASK[1:]]], 0], "Progress.tasks"),
        ([13, 2, [7, 5, ["dance"]]], "an order that this version does not know"),
    ],
)
def test_whatever_is_not_a_message_is_the_peers_fault(
    wire: object, complaint: str
) -> None:
    """The sentence says what was wrong with it."""
    with pytest.raises(RemoteProtocolError, match=complaint):
        from_wire(wire)


def test_a_message_of_the_wrong_direction_is_refused_by_its_tag() -> None:
    """Its fields are not even looked at."""
    with pytest.raises(RemoteProtocolError, match="Deploy may not come from this peer"):
        from_wire([11, "nonsense"], frozenset({Heartbeat}))


def test_a_barrier_survives_the_wire() -> None:
    """Its orders come back as orders, not as text."""
    assert barrier_from_wire(BARRIER.to_wire()) == BARRIER
    assert barrier_from_wire(_as_lists(BARRIER.to_wire())) == BARRIER


@pytest.mark.parametrize(
    ("wire", "complaint"),
    [
        (None, "a barrier has 3 fields, got None"),
        ([7, 5], "a barrier has 3 fields"),
        ([7, 5, "snapshot"], "an epoch, an earlier epoch and orders"),
        (["7", 5, []], "an epoch, an earlier epoch and orders"),
        ([7, 7, []], "an epoch, an earlier epoch and orders"),
        ([7, -1, []], "an epoch, an earlier epoch and orders"),
        ([7, 5, ["dance"]], "an order that this version does not know: 'dance'"),
    ],
)
def test_whatever_is_not_a_barrier_is_the_peers_fault(
    wire: object, complaint: str
) -> None:
    """An epoch that comes before the one it builds on is none either."""
    with pytest.raises(RemoteProtocolError, match=complaint):
        barrier_from_wire(wire)


def test_a_mark_of_splits_survives_the_wire() -> None:
    """Lists of names come back as they were."""
    mark = Splits("a", ("a", "b"), ("c",))
    assert splits_from_wire(_as_lists(mark.to_wire())) == mark


@pytest.mark.parametrize(
    "wire", [None, "abc", ["a", ["b"]], [1, [], []], ["a", "b", []], ["a", [], [7]]]
)
def test_whatever_is_not_a_mark_of_splits_is_the_peers_fault(wire: object) -> None:
    """Text is no list of names."""
    with pytest.raises(RemoteProtocolError, match="a name and two lists of names"):
        splits_from_wire(wire)
