"""Short runs of the chaos script: everything is there once and in order all the same.

``make chaos`` runs it for minutes, on a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults import chaos_flow
from tests.faults.chaos import Chaos, Place, check_output

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]

LINES = ["0 0 1 1", "0 35 2 2", "1 1 1 1", "0 70 3 3"]


@pytest.fixture(
    params=[
        pytest.param((Place("processes"), 8), id="processes"),
        pytest.param(
            (Place("spark", "local[4]"), 4), id="spark", marks=pytest.mark.spark
        ),
    ]
)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Chaos, int]]:
    """Give a running job, and how often to kill."""
    place, kills = request.param
    chaos = Chaos(tmp_path, place, seed=7)
    yield chaos, kills
    chaos.close()


def test_nothing_is_lost_doubled_or_out_of_order(run: tuple[Chaos, int]) -> None:
    """Workers and the driver are killed, and workers frozen that wake again."""
    chaos, kills = run

    chaos.run_chaos(kills, seconds=0)

    chaos.conclude()


def written(directory: Path, lines: list[str]) -> Path:
    middle = len(lines) // 2
    (directory / "part-00000.txt").write_text("\n".join(lines[:middle]))
    (directory / "part-00000-000002.txt").write_text("\n".join(lines[middle:]))
    return directory


def test_checker_takes_a_beginning(tmp_path: Path) -> None:
    """Parts count in the order of their epochs; the first has none in its name."""
    assert check_output(written(tmp_path, LINES)) == len(LINES)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([*LINES, "0 70 3 3"], id="doubled"),
        pytest.param([*LINES, "0 70 4 4"], id="doubled and counted"),
        pytest.param(LINES[:1] + LINES[2:], id="lost"),
        pytest.param([LINES[1], LINES[0], *LINES[2:]], id="out of order"),
    ],
)
def test_checker_sees_every_mistake(tmp_path: Path, lines: list[str]) -> None:
    """A checker that never complains would prove nothing."""
    with pytest.raises(AssertionError):
        check_output(written(tmp_path, lines))


def test_checker_misses_what_is_not_there(tmp_path: Path) -> None:
    """A beginning is not the whole."""
    with pytest.raises(AssertionError, match="only 4"):
        check_output(written(tmp_path, LINES), chaos_flow.FIRST_KEYS)
