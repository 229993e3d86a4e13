"""Pages, hooks and workflows name commands and rooms that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
HELP = set(re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE))
MAKE = re.compile(r"(?:`|entry: |run: |^\$ |^)make ([a-z]+)", re.MULTILINE)
HANDS = [
    ".ci/run",
    ".github/pull_request_template.md",
    ".github/workflows/ci.yml",
    ".pre-commit-config.yaml",
    "AGENTS.md",
    "CONTRIBUTING.md",
    "README.md",
]
AGENTS_LINES_MAX = 120


@pytest.mark.parametrize("name", HANDS)
def test_commands_that_are_named_are_there(name: str) -> None:
    """Whoever copies a line from a page gets what the page says."""
    named = set(MAKE.findall((ROOT / name).read_text()))

    assert named
    assert named - TARGETS == set()


def test_every_command_is_explained_to_contributors() -> None:
    """What `make help` lists has a row in the table of CONTRIBUTING.md."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = set(re.findall(r"^\| `make ([a-z]+)` \|", page, re.MULTILINE))

    assert HELP - rows == set()


def test_workflow_runs_everything_that_must_pass() -> None:
    """`.ci/run` is what a change is merged by; the others only tell sooner."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()

    assert re.search(r"^ +- run: \.ci/run$", workflow, re.MULTILINE)


def test_hooks_download_nothing() -> None:
    """They are the project's own targets, in the versions of the lock."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()

    assert set(re.findall(r"repo: (\S+)", hooks)) == {"local"}


def test_one_page_stays_one_page_and_names_every_room() -> None:
    """It is read by those who read nothing else."""
    page = (ROOT / "AGENTS.md").read_text()
    inside = (ROOT / "src" / "millstream").iterdir()
    rooms = [path.name for path in inside if not path.name.startswith(("_", "py."))]

    assert len(page.splitlines()) <= AGENTS_LINES_MAX
    assert [room for room in rooms if f"`{room}`" not in page] == []


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_one_page_is_found_from_the_long_ones(name: str) -> None:
    """And links back to them."""
    assert "(AGENTS.md)" in (ROOT / name).read_text()
    assert f"({name})" in (ROOT / "AGENTS.md").read_text()
