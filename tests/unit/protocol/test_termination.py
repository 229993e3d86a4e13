"""TerminationDetector at a free loop: time never overtakes what goes round, and the loop ends."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import Epoch
from millstream.protocol.rounds import (
    Decision,
    EpochPassedOn,
    HeadReady,
    HeadUnread,
    LoopUnread,
)
from millstream.protocol.termination import (
    ProbeReport,
    ProbeState,
    TerminationDetector,
    TerminationProbe,
)
from millstream.protocol.watermark import BEGINNING, Watermark

if TYPE_CHECKING:
    from random import Random

MARK = object()
NOTHING = Watermark(BEGINNING)


@dataclass
class Row:
    """Goes round `laps` times more."""

    time: int
    laps: int


@dataclass
class HeadModel:
    """A head with its input, which promises what it has in order."""

    looking: ProbeState = field(default_factory=ProbeState)
    source: deque[Any] = field(default_factory=deque)
    inbox: deque[Decision] = field(default_factory=deque)
    watermark: Watermark | None = NOTHING
    decided: int = 0
    is_looking: bool = False
    marks: set[int] = field(default_factory=set)
    told: int = BEGINNING


class LoopModel:
    """Heads, and as many tasks that send rows back to any head; all channels are FIFO.

    What a task reads from a head must be later than what that head has promised.
    """

    def __init__(self, random: Random, count: int) -> None:
        self.random = random
        self.count = count
        self.looks = TerminationDetector(count)
        self.heads = [HeadModel(source=self._input()) for _ in range(count)]
        pairs = [(i, j) for i in range(count) for j in range(count)]
        self.forth: dict[tuple[int, int], deque[Any]] = {p: deque() for p in pairs}
        self.back: dict[tuple[int, int], deque[Any]] = {p: deque() for p in pairs}
        self.reached = dict.fromkeys(pairs, BEGINNING)
        self.marked: list[set[int]] = [set() for _ in range(count)]
        self.asked = [False] * count
        self.left: list[Row] = []
        self.to_decider: deque[HeadReady] = deque()
        self.is_over = False
        self.last_told = BEGINNING

    def _input(self) -> deque[Any]:
        random, least = self.random, 0
        elements: deque[Any] = deque()
        for _ in range(random.randrange(12)):
            if random.random() < 0.4:
                least += random.randrange(5)
                elements.append(Watermark(least))
            else:
                row = Row(least + 1 + random.randrange(8), random.randrange(5))
                elements.append(row)
        return elements

    def run(self) -> None:
        """Do anything that can be done, in any order, until the loop is over."""
        for _ in range(20_000):
            if self.is_over:
                return
            steps = self._steps()
            self.random.choice(steps)()
            self.looks.validate()
            for head in self.heads:
                head.looking.validate()
        pytest.fail("the loop never ended")

    def _steps(self) -> list[Any]:
        steps: list[Any] = [self._decide] if self.to_decider else []
        for index, head in enumerate(self.heads):
            if head.source or head.watermark is not None:
                steps.append(lambda i=index: self._read(i))
            if head.inbox:
                steps.append(lambda i=index: self._apply(i))
        steps += [lambda p=p: self._work(p) for p, c in self.forth.items() if c]
        steps += [lambda p=p: self._return(p) for p, c in self.back.items() if c]
        return steps

    def _read(self, index: int) -> None:
        head = self.heads[index]
        if not head.source:
            head.watermark = None
            self._tell(index)
            return
        element = head.source.popleft()
        if isinstance(element, Row):
            self._send(index, element)
        else:
            head.watermark = element
            self._tell(index)

    def _tell(self, index: int) -> None:
        head = self.heads[index]
        if not head.is_looking:
            part = head.looking.part(head.watermark)
            self.to_decider.append(HeadReady(index, head.decided, part))

    def _send(self, index: int, row: Row) -> None:
        self.forth[index, self.random.randrange(self.count)].append(row)

    def _decide(self) -> None:
        for told in self.looks.hear(self.to_decider.popleft()):
            assert isinstance(told, Decision)
            assert told.value.watermark.time >= self.last_told
            self.last_told = told.value.watermark.time
            for head in self.heads:
                head.inbox.append(told)

    def _apply(self, index: int) -> None:
        head = self.heads[index]
        decision = head.inbox.popleft()
        assert not head.is_looking
        head.decided = decision.number
        if decision.is_over:
            self._check_empty()
            self.is_over = True
            return
        look: TerminationProbe = decision.value
        head.looking.begin(head.watermark)
        head.is_looking = True
        for target in range(self.count):
            self.forth[index, target] += [look.watermark, (MARK, look.asks_flush)]

    def _check_empty(self) -> None:
        assert not any(isinstance(e, Row) for c in self.forth.values() for e in c)
        assert not any(isinstance(e, Row) for c in self.back.values() for e in c)
        assert all(head.watermark is None for head in self.heads)
        assert all(self.asked), "nobody was asked for a final flush"

    def _work(self, pair: tuple[int, int]) -> None:
        source, target = pair
        if source in self.marked[target]:
            return
        element = self.forth[pair].popleft()
        if isinstance(element, Watermark):
            self.reached[pair] = max(self.reached[pair], element.time)
        elif isinstance(element, Row):
            assert element.time > self.reached[pair], "time has overtaken a row"
            self._pass(target, element)
        else:
            self.marked[target].add(source)
            self.asked[target] |= element[1]
            if len(self.marked[target]) == self.count:
                self.marked[target].clear()
                for head in range(self.count):
                    self.back[target, head].append(MARK)

    def _pass(self, target: int, row: Row) -> None:
        if row.laps == 0:
            self.left.append(row)
            return
        later = row.time + self.random.randrange(3)
        head = self.random.randrange(self.count)
        self.back[target, head].append(Row(later, row.laps - 1))

    def _return(self, pair: tuple[int, int]) -> None:
        source, index = pair
        head, element = self.heads[index], self.back[pair].popleft()
        if isinstance(element, Row):
            head.looking.come_back(1, element.time)
            self._send(index, element)
            return
        head.marks.add(source)
        if len(head.marks) == self.count:
            head.marks.clear()
            head.is_looking = False
            head.looking.end()
            self._tell(index)


@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_time_never_overtakes_rows_and_the_loop_ends(
    random: Random, count: int
) -> None:
    """Whatever the order of events, no row is late by going round, and none is lost."""
    loop = LoopModel(random, count)
    rows = sum(isinstance(e, Row) for head in loop.heads for e in head.source)
    loop.run()
    assert len(loop.left) == rows


def told(looks: TerminationDetector, *parts: ProbeReport) -> list[Any]:
    """Let all heads say what they know."""
    made = []
    for head, part in enumerate(parts):
        made += looks.hear(HeadReady(head, looks.number, part))
        looks.validate()
    return made


def test_a_look_is_made_only_when_it_may_tell_something_new() -> None:
    """An input that has promised nothing more is not looked at again."""
    looks = TerminationDetector(1)
    assert told(looks, ProbeReport(now=Watermark(BEGINNING))) == []
    (first,) = told(looks, ProbeReport(now=Watermark(5)))
    assert first.value.watermark == Watermark(BEGINNING)
    (second,) = told(looks, ProbeReport(before=Watermark(5), now=Watermark(5)))
    assert second.value.watermark == Watermark(5)
    assert told(looks, ProbeReport(before=Watermark(5), now=Watermark(5))) == []


def test_what_came_back_holds_time_back() -> None:
    """The loop promises less than the least time that goes round."""
    looks = TerminationDetector(2)
    told(looks, ProbeReport(now=Watermark(9)), ProbeReport(now=Watermark(8)))
    parts = (
        ProbeReport(3, 6, Watermark(9), Watermark(9)),
        ProbeReport(0, before=Watermark(8), now=Watermark(8)),
    )
    (decision,) = told(looks, *parts)
    assert decision.value.watermark == Watermark(5)


def test_only_what_was_promised_before_a_look_counts() -> None:
    """Rows may have come in behind the look, before the input promised more."""
    looks = TerminationDetector(1)
    told(looks, ProbeReport(now=Watermark(4)))
    (decision,) = told(looks, ProbeReport(before=Watermark(4), now=Watermark(9)))
    assert decision.value.watermark == Watermark(4)


def test_an_idle_input_does_not_hold_the_loop_back() -> None:
    """A head whose input rests does not count; when all rest, the loop does."""
    idle, awake = Watermark(2, is_idle=True), Watermark(7)
    looks = TerminationDetector(2)
    told(looks, ProbeReport(now=idle), ProbeReport(now=awake))
    parts = ProbeReport(before=idle, now=idle), ProbeReport(before=awake, now=awake)
    (decision,) = told(looks, *parts)
    assert decision.value.watermark == awake
    resting = Watermark(7, is_idle=True)
    told(
        looks,
        ProbeReport(before=idle, now=idle),
        ProbeReport(before=awake, now=resting),
    )
    parts = ProbeReport(before=idle, now=idle), ProbeReport(before=resting, now=resting)
    (decision,) = told(looks, *parts)
    assert decision.value.watermark == resting


def test_a_loop_is_over_after_two_quiet_looks_and_last_words() -> None:
    """A look that found nothing counts only if the input was over when it began."""
    looks = TerminationDetector(1)
    over = ProbeReport(before=None, now=None)
    (first,) = told(looks, ProbeReport(now=None))
    assert first.value == TerminationProbe()
    quiet = [told(looks, over)[0] for _ in range(3)]
    assert [d.value.quiet for d in quiet] == [1, 2, 0]
    assert [d.value.asks_flush for d in quiet] == [False, True, False]
    assert [d.is_over for d in quiet] == [False, False, True]


def test_last_words_that_come_back_begin_the_looking_anew() -> None:
    """Rows that operators said at the end go round like others."""
    looks = TerminationDetector(1)
    told(looks, ProbeReport(now=None))
    over = ProbeReport(before=None, now=None)
    told(looks, over)
    (asking,) = told(looks, over)
    assert asking.value.asks_flush
    (again,) = told(looks, ProbeReport(1, BEGINNING, None, None))
    assert not again.is_over
    assert again.value.quiet == 0


def test_an_unread_loop_is_over_when_its_input_is() -> None:
    """Heads are told to read no more; the next decision is the last."""
    looks = TerminationDetector(2)
    assert looks.note_unread(HeadUnread(0)) == []
    assert looks.note_unread(HeadUnread(1)) == [LoopUnread()]
    (decision,) = told(looks, ProbeReport(now=None), ProbeReport(now=None))
    assert decision.is_over


def test_epochs_are_passed_on_at_once() -> None:
    """A free loop is cut anywhere."""
    barrier = Barrier(Epoch(3), Epoch(2))
    assert TerminationDetector(1).announce(barrier) == [EpochPassedOn(barrier)]


def test_what_was_said_before_the_last_decision_is_ignored() -> None:
    """A head may have told its news while the decision was on its way."""
    looks = TerminationDetector(1)
    told(looks, ProbeReport(now=Watermark(5)))
    assert looks.hear(HeadReady(0, 0, ProbeReport(now=Watermark(6)))) == []
