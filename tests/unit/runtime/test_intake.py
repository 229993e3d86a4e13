"""Intakes: where the batches of a task come from and how a row is named."""

from __future__ import annotations

from typing import Any

import polars as pl
from tests.support.making import channel

from millstream.config import Config, configured
from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.frame import DataFrameSource
from millstream.protocol.barrier import Barrier
from millstream.protocol.batching import BatchSize
from millstream.protocol.ids import Epoch
from millstream.protocol.packets import PacketKind
from millstream.runtime.channels import InputChannel
from millstream.runtime.intake import ChannelIntake, SourceIntake
from millstream.testing import ManualClock, Pause, ScriptedSource


def intake_of(count: int) -> ChannelIntake:
    return ChannelIntake([InputChannel(channel(i)) for i in range(count)])


def barrier(epoch: int) -> Barrier:
    return Barrier(Epoch(epoch), Epoch(epoch - 1))


def due_cut(intake: ChannelIntake) -> Barrier | None:
    return intake.barrier


def rows_of(intake: ChannelIntake | SourceIntake) -> list[Any]:
    batches = []
    while (taken := intake.take(0)) is not None:
        batches.append(taken[0])
    return batches


def test_channels_are_read_in_the_order_in_which_batches_came() -> None:
    """A busy channel does not starve the others."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BATCH, 0, ["a"], 1)
    second.receive(PacketKind.BATCH, 0, ["b"], 1)
    first.receive(PacketKind.BATCH, 1, ["c"], 1)

    assert rows_of(intake) == [["a"], ["b"], ["c"]]


def test_channel_intake_is_over_when_all_channels_ended_and_are_empty() -> None:
    """One open channel keeps a task alive."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BATCH, 0, ["a"], 1)
    first.receive(PacketKind.END, 1, [], 0)
    assert rows_of(intake) == [["a"]]
    assert not intake.is_over

    second.receive(PacketKind.END, 0, [], 0)
    assert rows_of(intake) == []

    assert intake.is_over


def test_position_counts_the_rows_of_the_channel() -> None:
    """The row of an error is named from the beginning of its channel."""
    intake = intake_of(1)
    intake.channels[0].receive(PacketKind.BATCH, 0, [1, 2, 3], 1)
    intake.channels[0].receive(PacketKind.BATCH, 1, [4, 5], 1)
    rows_of(intake)

    assert intake.position(1, 2) == "record 4 from task 0 of stage 0"


def test_closed_channel_intake_gives_nothing_more() -> None:
    """What already waits is dropped."""
    intake = intake_of(1)
    intake.channels[0].receive(PacketKind.BATCH, 0, [1], 1)

    intake.close()

    assert intake.take(0) is None
    assert intake.channels[0].is_closed


def test_cut_is_due_when_the_barrier_came_on_every_channel() -> None:
    """A channel whose barrier came is not read until the cut is done."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    first.receive(PacketKind.BATCH, 1, ["behind"], 1)
    second.receive(PacketKind.BATCH, 0, ["before"], 1)

    assert rows_of(intake) == [["before"]]
    assert due_cut(intake) is None
    assert len(first) == 1
    second.receive(PacketKind.BARRIER, 1, barrier(1), 0)
    second.receive(PacketKind.BATCH, 2, ["also behind"], 1)
    assert rows_of(intake) == []
    assert due_cut(intake) == barrier(1)

    intake.release()

    assert rows_of(intake) == [["behind"], ["also behind"]]
    assert due_cut(intake) is None


def test_ended_channel_is_not_waited_for() -> None:
    """It has nothing before the cut that could still come."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    second.receive(PacketKind.BATCH, 0, ["last"], 1)
    second.receive(PacketKind.END, 1, [], 0)

    assert rows_of(intake) == [["last"]]

    assert intake.barrier == barrier(1)


def test_channel_that_ends_behind_its_barrier_keeps_the_task_alive() -> None:
    """Blocked elements count: the intake is over only when they are read."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    first.receive(PacketKind.END, 1, [], 0)
    assert rows_of(intake) == []
    second.receive(PacketKind.END, 0, [], 0)
    assert not intake.is_over

    assert rows_of(intake) == []
    assert intake.barrier == barrier(1)
    intake.release()
    rows_of(intake)

    assert intake.is_over


def test_blocked_channel_keeps_its_place_in_the_order() -> None:
    """What waited longest is read first after the cut."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    for number in (1, 2):
        first.receive(PacketKind.BATCH, number, [number], 1)
    rows_of(intake)
    second.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    rows_of(intake)
    second.receive(PacketKind.BATCH, 1, [3], 1)

    intake.release()

    assert rows_of(intake) == [[1], [2], [3]]


class Letters(Source[str]):
    """Splits that each spell their own name, letter by letter."""

    def __init__(self, *, is_bounded: bool) -> None:
        self.is_bounded = is_bounded
        self.closed: list[str] = []

    def splits(self, task_count: int) -> list[Split]:
        return [Split(name) for name in ("abc", "xy")]

    def open(self, split: Split, offset: int, config: Config) -> SourceReader[str]:
        return _LetterReader(split.name, offset, self)


class _LetterReader(SourceReader[str]):
    def __init__(self, text: str, offset: int, source: Letters) -> None:
        self._text, self._source, self._offset = text, source, offset

    def read(self, rows: int) -> list[str] | None:
        row = self._text[self._offset : self._offset + 1]
        self._offset += 1
        return [row] if row else None

    @property
    def offset(self) -> int:
        return self._offset

    def close(self) -> None:
        self._source.closed.append(self._text)


def source_intake(
    source: Source[Any],
    offsets: dict[str, int | None] | None = None,
    **settings: Any,
) -> SourceIntake:
    config = configured(Config(), settings)
    return SourceIntake("read", source, source.splits(1), config, offsets or {})


def test_splits_of_an_unbounded_source_take_turns() -> None:
    """None of them waits for another one to end."""
    source = Letters(is_bounded=False)
    intake = source_intake(source)

    assert rows_of(intake) == [["a"], ["x"], ["b"], ["y"], ["c"]]
    assert intake.is_over
    assert sorted(source.closed) == ["abc", "xy"]


def test_splits_of_a_bounded_source_are_read_one_after_the_other() -> None:
    """Only one file is open at a time."""
    intake = source_intake(Letters(is_bounded=True))

    assert rows_of(intake) == [["a"], ["b"], ["c"], ["x"], ["y"]]


def test_position_names_the_split_and_the_row_in_it() -> None:
    """A user can find the row in the input."""
    intake = source_intake(Letters(is_bounded=True))
    assert intake.position(0, 1) == "before the first record"
    intake.take(0)
    intake.take(0)

    assert intake.position(0, 1) == "record 1 of abc"


def test_what_fails_while_it_is_read_is_named() -> None:
    """Which is the next split, not that of the last batch."""
    intake = source_intake(Letters(is_bounded=True))
    assert intake.reading() == "while opening what is read next"
    for _ in range(4):
        intake.take(0)

    assert intake.reading() == "while reading xy after 1 records"


def test_idle_source_is_asked_again_only_after_a_while() -> None:
    """An empty source does not keep a core busy."""
    clock = ManualClock()
    intake = source_intake(ScriptedSource([Pause(), "row"]), source_idle_ms=2)

    assert intake.take(clock.monotonic_ns()) is None
    assert intake.idle_until_ns == 2_000_000
    clock.advance("1ms")
    assert intake.take(clock.monotonic_ns()) is None
    clock.advance("1ms")

    assert intake.take(clock.monotonic_ns()) == (["row"], 0)


def test_closing_a_source_intake_closes_its_readers() -> None:
    """A job that is stopped leaves no file open."""
    source = Letters(is_bounded=False)
    intake = source_intake(source)
    intake.take(0)

    intake.close()

    assert sorted(source.closed) == ["abc", "xy"]
    assert intake.is_over


def test_source_cuts_when_the_epoch_is_announced() -> None:
    """No barrier reaches it; nothing is read until the cut is done."""
    intake = source_intake(Letters(is_bounded=True))
    intake.take(0)

    intake.announce(barrier(1))

    assert intake.take(0) is None
    assert intake.barrier == barrier(1)
    assert intake.offsets() == (("read", "abc", 1, False),)
    intake.release()
    assert intake.take(0) == (["b"], 0)
    assert intake.barrier is None


def test_idle_source_cuts_at_once() -> None:
    """An epoch does not wait until there is something to read."""
    intake = source_intake(ScriptedSource([Pause(), "row"]), source_idle_ms=2)
    assert intake.take(0) is None

    intake.announce(barrier(1))

    assert intake.idle_until_ns is None
    assert intake.take(0) is None
    assert intake.barrier == barrier(1)


def test_offsets_tell_open_splits_from_those_read_to_their_end() -> None:
    """A split that has not been begun is not mentioned."""
    intake = source_intake(Letters(is_bounded=True))
    assert intake.offsets() == ()

    for _ in range(4):
        intake.take(0)

    assert intake.offsets() == (
        ("read", "xy", 1, False),
        ("read", "abc", 0, True),
    )


def test_reading_goes_on_at_the_offsets() -> None:
    """What was read before the cut is not read again, and nothing is left out."""
    intake = source_intake(Letters(is_bounded=True), {"abc": 2})

    assert intake.offsets() == (("read", "abc", 2, False),)
    assert rows_of(intake) == [["c"], ["x"], ["y"]]


def test_split_that_was_read_to_its_end_is_not_opened_again() -> None:
    """And stays known as done in the next snapshot."""
    source = Letters(is_bounded=True)
    intake = source_intake(source, {"abc": None, "xy": 1})

    assert rows_of(intake) == [["y"]]

    assert source.closed == ["xy"]
    assert {offset[1:] for offset in intake.offsets()} == {
        ("abc", 0, True),
        ("xy", 0, True),
    }


def test_closed_source_remembers_how_far_it_was_read() -> None:
    """Nobody reads on now, but a branch that is added to the flow may."""
    intake = source_intake(Letters(is_bounded=True))
    intake.take(0)

    intake.close()

    assert {offset[1:] for offset in intake.offsets()} == {
        ("abc", 1, False),
        ("xy", 0, False),
    }


def test_data_frames_become_as_large_as_their_time_allows() -> None:
    """A batch above the bound is followed by a smaller one, of the same split."""
    source = DataFrameSource(pl.DataFrame({"n": range(100_000)}))
    size = BatchSize(16_384, least=1024, most=131_072, bound_ns=50_000_000)
    intake = SourceIntake(
        "read", source, source.splits(1), Config(), {}, frame_size=size
    )

    heights = []
    for _ in range(3):
        taken = intake.take(0)
        assert taken is not None
        heights.append(len(taken[0]))
        intake.note_time(heights[-1], 200_000_000)

    assert heights == [16_384, 2048, 1024]


def test_source_that_had_ended_ends_without_a_barrier() -> None:
    """Who reads it may be in a round, which no barrier may come into."""
    source = ScriptedSource(["a"])
    splits = source.splits(1)
    offsets = {split.name: None for split in splits}
    intake = SourceIntake("read", source, splits, Config(), offsets)

    intake.announce(barrier(7))

    assert intake.take(0) is None
    assert intake.barrier is None
    assert intake.is_over
