"""The intake of a source: which split is read when, and how a row is named."""

from __future__ import annotations

from typing import Any

import polars as pl
from tests.support.making import nodes
from tests.support.taking import barrier, taken

from millstream.config import Config, configured
from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.frame import DataFrameSource
from millstream.plan.nodes import Read
from millstream.protocol.batching import BatchSize
from millstream.runtime.elements import END_OF_INPUT, TakenBatch
from millstream.runtime.source_intake import SourceIntake
from millstream.testing import ManualClock, Pause, ScriptedSource


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

    assert taken(intake) == [["a"], ["x"], ["b"], ["y"], ["c"], END_OF_INPUT]
    assert sorted(source.closed) == ["abc", "xy"]


def test_splits_of_a_bounded_source_are_read_one_after_the_other() -> None:
    """Only one file is open at a time."""
    intake = source_intake(Letters(is_bounded=True))

    assert taken(intake) == [["a"], ["b"], ["c"], ["x"], ["y"], END_OF_INPUT]


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
    (node,) = nodes([Read(Letters(is_bounded=True))])
    first = intake.failure(OSError(), node)
    for _ in range(4):
        intake.take(0)
    second = intake.failure(OSError(), node)

    assert first.position == "while opening what is read next"
    assert second.position == "while reading xy after 1 records"
    assert second.node is node


def test_idle_source_is_asked_again_only_after_a_while() -> None:
    """An empty source does not keep a core busy."""
    clock = ManualClock()
    intake = source_intake(ScriptedSource([Pause(), "row"]), source_idle_ms=2)

    assert intake.take(clock.monotonic_ns()) is None
    assert intake.wake_ns() == 2_000_000
    clock.advance("1ms")
    assert intake.take(clock.monotonic_ns()) is None
    clock.advance("1ms")

    assert intake.take(clock.monotonic_ns()) == TakenBatch(["row"])


def test_closing_a_source_intake_closes_its_readers() -> None:
    """A job that is stopped leaves no file open."""
    source = Letters(is_bounded=False)
    intake = source_intake(source)
    intake.take(0)

    intake.close()

    assert sorted(source.closed) == ["abc", "xy"]
    assert intake.take(0) == END_OF_INPUT


def test_source_cuts_when_the_epoch_is_announced() -> None:
    """No barrier reaches it; nothing is read until the cut is done."""
    intake = source_intake(Letters(is_bounded=True))
    intake.take(0)

    intake.announce(barrier(1))

    assert intake.take(0) == barrier(1)
    assert intake.offsets() == (("read", "abc", 1, False),)
    assert intake.release(is_pausing=False), "nothing comes round to a source"
    assert intake.take(0) == TakenBatch(["b"])


def test_idle_source_cuts_at_once() -> None:
    """An epoch does not wait until there is something to read."""
    intake = source_intake(ScriptedSource([Pause(), "row"]), source_idle_ms=2)
    assert intake.take(0) is None

    intake.announce(barrier(1))

    assert intake.wake_ns() is None
    assert intake.take(0) == barrier(1)


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
    assert taken(intake) == [["c"], ["x"], ["y"], END_OF_INPUT]


def test_split_that_was_read_to_its_end_is_not_opened_again() -> None:
    """And stays known as done in the next snapshot."""
    source = Letters(is_bounded=True)
    intake = source_intake(source, {"abc": None, "xy": 1})

    assert taken(intake) == [["y"], END_OF_INPUT]

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
        batch = intake.take(0)
        assert isinstance(batch, TakenBatch)
        heights.append(len(batch.rows))
        intake.note_time(heights[-1], 200_000_000)

    assert heights == [16_384, 2048, 1024]


def test_source_that_had_ended_ends_without_a_barrier() -> None:
    """Who reads it may be in a round, which no barrier may come into."""
    source = ScriptedSource(["a"])
    splits = source.splits(1)
    offsets = {split.name: None for split in splits}
    intake = SourceIntake("read", source, splits, Config(), offsets)

    intake.announce(barrier(7))

    assert intake.take(0) == END_OF_INPUT
