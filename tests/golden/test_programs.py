"""Programs whose plans and results are pinned, at every number of workers.

``UPDATE_GOLDEN=1 pytest tests/golden`` writes the pinned files anew; read the
difference before you commit it.
"""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import millstream as ms

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
IS_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"


def built(program: Path) -> ms.Flow:
    flow: ms.Flow = runpy.run_path(str(program))["flow"]
    return flow


def assert_pinned(path: Path, text: str) -> None:
    """Compare with the pinned file, or write it where that was asked for."""
    if IS_UPDATE:
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} differs; see the module's docstring"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_plan_is_pinned(program: Path) -> None:
    """Whoever changes the planner sees what becomes of real programs."""
    flow = built(program)

    assert_pinned(program.with_suffix(".plan.txt"), flow.explain(workers=2))
    assert_pinned(program.with_suffix(".mmd"), flow.explain(form="mermaid"))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_results_are_pinned(program: Path, workers: int) -> None:
    """The number of workers changes the order of rows and nothing else."""
    flow = built(program)
    flow.run(on="local", workers=workers)

    results = {handle.name: as_plain(handle.result()) for handle in flow.handles}
    text = json.dumps(results, indent=2, sort_keys=True) + "\n"
    assert_pinned(program.with_suffix(".json"), text)


def as_plain(result: object) -> object:
    """Return a result as JSON has it, rows in order."""
    if not isinstance(result, list):
        return result
    return sorted(json.loads(json.dumps(result)))


def test_every_pinned_file_has_its_program() -> None:
    """A file that nobody compares with is worse than none."""
    names = {program.stem for program in PROGRAMS}
    pinned = [p for p in (HERE / "programs").iterdir() if p.suffix != ".py"]

    strays = {p.name for p in pinned if p.name.split(".")[0] not in names}
    assert strays - {"__pycache__"} == set()
