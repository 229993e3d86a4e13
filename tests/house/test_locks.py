"""The lock files: what they pin is what the project asks for, and says nothing of where from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ("build.lock", "dev.lock")
PIN = re.compile(r"([a-z0-9-]+)(?:\[[a-z0-9,-]+\])?==([^ ;]+)(?: ; ([^\\]+))? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


def lines_of(lock: str) -> list[str]:
    return (ROOT / "requirements" / lock).read_text().splitlines()


def pins(lock: str) -> dict[str, list[str]]:
    """Return the versions by name; of some there is one for each Python."""
    found: dict[str, list[str]] = {}
    for line in lines_of(lock):
        match = PIN.fullmatch(line)
        if match:
            found.setdefault(match[1], []).append(match[2])
    return found


def asked() -> list[Requirement]:
    """Return what the project and its extras ask for, but for itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    requirements = [Requirement(text) for text in texts]
    return [each for each in requirements if each.name != project["name"]]


def built_with() -> list[Requirement]:
    """Return what builds the project."""
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    return [Requirement(text) for text in system["requires"]]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_versions_and_hashes_and_nothing_else(lock: str) -> None:
    """A line with an index, a host or a file would send everybody there."""
    lines = lines_of(lock)
    strange = [
        line for line in lines if not (PIN.fullmatch(line) or HASH.fullmatch(line))
    ]

    assert lines
    assert strange == []


@pytest.mark.parametrize("lock", LOCKS)
def test_every_version_in_a_lock_has_a_hash(lock: str) -> None:
    """Pip refuses the whole file otherwise, and a version alone proves nothing."""
    lines = lines_of(lock)
    bare = [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if PIN.fullmatch(line) and not HASH.fullmatch(following)
    ]

    assert bare == []


@pytest.mark.parametrize(
    ("lock", "requirements"), [("dev.lock", asked()), ("build.lock", built_with())]
)
def test_a_lock_has_what_the_project_asks_for(
    lock: str, requirements: list[Requirement]
) -> None:
    """Whoever adds a dependency or moves a bound must refresh it: `make lock`."""
    found = pins(lock)
    missing = [
        str(each)
        for each in requirements
        if not found.get(canonicalize_name(each.name))
        or not all(map(each.specifier.contains, found[canonicalize_name(each.name)]))
    ]

    assert requirements
    assert missing == []


def test_both_locks_agree() -> None:
    """One environment is made of both, one after the other."""
    build, dev = pins("build.lock"), pins("dev.lock")
    both = build.keys() & dev.keys()

    assert {name: build[name] for name in both} == {name: dev[name] for name in both}
