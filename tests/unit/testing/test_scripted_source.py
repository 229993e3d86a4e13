"""A source that does exactly what its script says."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.config import Config
from millstream.testing import Pause, Raise, ScriptedSource


def test_script_is_read_step_by_step() -> None:
    """A pause ends a batch, or is an empty one."""
    source = ScriptedSource(["a", "b", Pause(), Pause(), "c"])
    (split,) = source.splits(3)
    reader = source.open(split, 0, Config())

    assert [reader.read(8) for _ in range(4)] == [["a", "b"], [], ["c"], None]
    assert reader.offset == 5


def test_reader_goes_on_from_an_offset() -> None:
    """The offset of a reader is where the next one begins."""
    source = ScriptedSource([1, Pause(), 2, 3])
    (split,) = source.splits(1)
    first = source.open(split, 0, Config())
    first.read(1)
    first.read(1)

    assert source.open(split, first.offset, Config()).read(8) == [2, 3]


def test_error_is_raised_where_the_script_says() -> None:
    """Rows before it are delivered first."""
    source = ScriptedSource([1, Raise(ValueError("bad"))])
    (split,) = source.splits(1)
    reader = source.open(split, 0, Config())

    assert reader.read(8) == [1]
    with pytest.raises(ValueError, match="bad"):
        reader.read(8)


def test_scripts_are_read_by_several_tasks() -> None:
    """One script per split."""
    flow = ms.Flow("scripts")
    rows = flow.read(ScriptedSource([1, 2], [3], [Pause(), 4])).collect()
    flow.run(on="local", workers=2)

    assert sorted(rows.result()) == [1, 2, 3, 4]
