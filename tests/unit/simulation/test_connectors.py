"""Sources read by the seed, not by the machine; sinks that only remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.config import Config
from millstream.connectors.base import Split
from millstream.connectors.iterable import IterableSource
from millstream.launch.job import deploy
from millstream.simulation.connectors import RecordingSink, SteadySource, stand_in
from millstream.simulation.options import SwarmOptions
from millstream.testing import Pause, Raise, ScriptedSource

if TYPE_CHECKING:
    from millstream.connectors.base import SourceReader


def reader_of(source: Any, **options: float) -> SourceReader[Any]:
    swarm = SwarmOptions(1, Config(), **options)  # type: ignore[arg-type] # shares only
    (split,) = source.splits(1)
    return SteadySource(source, swarm, seed=3).open(split, 0, Config())


def chunks(reader: SourceReader[Any], rows: int = 8) -> list[list[Any]]:
    return list(iter(lambda: reader.read(rows), None))


def test_chunks_do_not_depend_on_the_speed_of_an_iterator() -> None:
    """An iterator's own reader gives as many rows as it gets in a millisecond."""
    reader = reader_of(IterableSource(lambda: iter(range(20))))

    assert [len(chunk) for chunk in chunks(reader)] == [8, 8, 4]


def test_short_and_idle_reads_are_drawn_and_lose_nothing() -> None:
    """A source may return less than asked for, or nothing now."""
    options = {"short_read_share": 0.9, "idle_share": 0.3}
    first = chunks(reader_of(IterableSource(range(50)), **options))

    assert [row for chunk in first for row in chunk] == list(range(50))
    assert [] in first
    assert len({len(chunk) for chunk in first}) > 2
    assert chunks(reader_of(IterableSource(range(50)), **options)) == first


def test_pause_of_the_source_is_kept() -> None:
    """Nothing now means nothing now, also in the simulator."""
    reader = reader_of(ScriptedSource([1, Pause(), Pause(), Pause(), 2]))

    assert chunks(reader) == [[1], [], [2]]


def test_error_comes_after_the_rows_before_it() -> None:
    """So the position names the record that failed."""
    reader = reader_of(ScriptedSource([1, 2, Raise(OSError("gone"))]))

    assert reader.read(8) == [1, 2]
    with pytest.raises(OSError, match="gone"):
        reader.read(8)


def test_sinks_and_functions_are_replaced() -> None:
    """A simulation writes nothing and calls nobody."""
    flow = ms.Flow("outside")
    flow.from_iterable([1]).for_each(print)
    deployment = deploy(flow.plan, Config(), "job", 1)
    replaced, sinks = stand_in(deployment, SwarmOptions(1, Config()), seed=1)

    (sink,) = sinks.values()
    assert replaced.stages.stages[-1].nodes[-1].spec.sink is sink  # type: ignore[union-attr] # a Write


def test_commit_remembers_who_was_not_ready() -> None:
    """Output of a task that still writes must not become visible."""
    sink = RecordingSink()
    ready, unready = sink.open("job", 0), sink.open("job", 1)
    ready.write([1])
    unready.write([2])
    ready.close()
    sink.commit("job")

    assert sink.rows == [1, 2]
    assert (sink.commit_count, sink.unready) == (1, [1])


def test_splits_are_those_of_the_source() -> None:
    """The seed changes how a split is read, not which there are."""
    source = SteadySource(IterableSource([1]), SwarmOptions(1, Config()), seed=1)

    assert source.splits(4) == [Split("iterable")]
    assert not source.is_parallel
