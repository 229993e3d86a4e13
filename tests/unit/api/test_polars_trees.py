"""A Polars that was not tried is refused, by name, when the first frame is made."""

from __future__ import annotations

import tomllib
from pathlib import Path

import polars as pl
import pytest

import millstream as ms
from millstream.api import polars_trees
from millstream.api.polars_trees import TRIED, check_polars

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    check_polars.cache_clear()


def test_installed_polars_writes_the_trees_that_are_read() -> None:
    """Which is what all other tests of frames rely upon."""
    check_polars()


def test_polars_of_another_minor_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the first frame, in one sentence."""
    monkeypatch.setattr(pl, "__version__", "2.97.1")

    with pytest.raises(ms.UsageError, match=r"Polars 2\.97\.1 .*tried with 2\.1 only"):
        ms.Flow("untried").from_frame(pl.DataFrame({"x": [1]}))


def test_expression_that_is_written_in_another_way_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A patch release may change the format too."""
    shapes = ((lambda: pl.col("x").sum(), {"Agg": {"Sum": {"input": "x"}}}),)
    monkeypatch.setattr(polars_trees, "_SHAPES", shapes)

    with pytest.raises(
        ms.UsageError, match=r"col\(\"x\"\)\.sum\(\) in a way that is not"
    ):
        check_polars()


def test_what_is_installed_with_the_package_is_what_was_tried() -> None:
    """A wider range would install what the first frame refuses."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    (wanted,) = (name for name in project["dependencies"] if "polars" in name)
    below = int(TRIED[-1].split(".")[1]) + 1

    assert wanted == f"polars>={TRIED[0]},<2.{below}"
