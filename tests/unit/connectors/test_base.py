"""What a source of one's own must say."""

from __future__ import annotations

from typing import Any

import pytest

import millstream as ms


class Numbers(ms.Source[int]):
    """Three numbers in one split."""

    def __init__(self, reader: type[Any]) -> None:
        self._reader = reader

    def splits(self, task_count: int) -> list[ms.Split]:
        del task_count
        return [ms.Split("all")]

    def open(self, split: ms.Split, offset: int, config: ms.Config) -> Any:
        del split, config
        return self._reader(offset)


class SettingReader(ms.SourceReader[int]):
    """Sets its offset as an attribute."""

    def __init__(self, offset: int) -> None:
        self.offset = offset  # type: ignore[misc]  # a property for type checkers

    def read(self, rows: int) -> list[int] | None:
        del rows
        self.offset += 1  # type: ignore[misc]  # as above
        return [self.offset] if self.offset <= 3 else None


class ForgettingReader(ms.SourceReader[int]):
    """Says nothing about where it is."""

    def __init__(self, offset: int) -> None:
        del offset

    def read(self, rows: int) -> list[int] | None:
        del rows
        return [1]


def test_offset_may_be_set_by_the_reader() -> None:
    """No property needs to be written for it."""
    flow = ms.Flow("setting")
    rows = flow.read(Numbers(SettingReader)).collect()
    flow.run(on="local")

    assert rows.result() == [1, 2, 3]


def test_reader_without_an_offset_is_told() -> None:
    """When it is first asked for, by its name."""
    flow = ms.Flow("forgetting")
    flow.read(Numbers(ForgettingReader)).collect()
    with pytest.raises(ms.OperatorError, match="ForgettingReader has no offset; set"):
        flow.run(on="local")
