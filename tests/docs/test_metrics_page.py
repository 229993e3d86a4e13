"""The tables of docs/reference/metrics.md have every field, in order, and its kind."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.protocol.metrics import COUNTERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def table(kind: type[Any]) -> list[list[str]]:
    """Return the rows of the table of a class."""
    head = re.escape(f"| field of `{kind.__name__}` |")
    found = re.search(
        rf"^{head}.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE
    )
    assert found is not None
    lines = found[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(
    "kind", [ms.StageMetrics, ms.TaskMetrics, ms.OutputMetrics, ms.WorkerMetrics]
)
def test_every_field_has_a_row(kind: type[Any]) -> None:
    """In the order in which the message carries them."""
    names = [row[0].strip("`") for row in table(kind)]

    assert names == [field.name for field in fields(kind)]


def test_counters_are_those_that_are_added_up() -> None:
    """All else is a gauge, but for what says which task it is."""
    kinds = {row[0].strip("`"): row[1] for row in table(ms.TaskMetrics)}

    assert tuple(name for name, kind in kinds.items() if kind == "counter") == COUNTERS
    assert [name for name, kind in kinds.items() if not kind] == ["stage", "task"]
