"""Make a release: ``make release VERSION=x.y.z``.

Writes the version, dates the changelog, builds sdist and wheel into `dist/`, commits and
tags.  It pushes and uploads nothing: what it made can be looked at, and thrown away, first.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["dated", "release"]

CHANGELOG = "CHANGELOG.md"
VERSIONED = {
    "pyproject.toml": re.compile(r'^version = "(?P<version>[^"]+)"$', re.MULTILINE),
    "src/millstream/__init__.py": re.compile(
        r'^__version__ = "(?P<version>[^"]+)"$', re.MULTILINE
    ),
}
"""The files that have the version in them, and where."""

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_UNRELEASED = "## [Unreleased]\n"


def release(root: Path, version: str, date: str) -> None:
    """Make a release of the repository, or change nothing and say why not."""
    texts = _changed(root, version, date)
    try:
        for name, text in texts.items():
            (root / name).write_text(text)
        _build(root, version)
        _git(root, "commit", "--quiet", "--message", f"release: {version}", *texts)
    except BaseException:
        _git(root, "checkout", "--quiet", "HEAD", "--", *texts)
        raise
    _git(root, "tag", "--annotate", f"v{version}", "--message", f"Millstream {version}")


def dated(changelog: str, version: str, date: str) -> str:
    """Return a changelog in which everything unreleased belongs to a version."""
    head, found, rest = changelog.partition(_UNRELEASED)
    news, _, _ = rest.partition("\n## [")
    if not found or not news.strip():
        sys.exit(f"{CHANGELOG} says nothing under [Unreleased]; say what has changed")
    return f"{head}{_UNRELEASED}\n## [{version}] - {date}\n{rest}"


def _changed(root: Path, version: str, date: str) -> dict[str, str]:
    """Return the files as they will be; refuse what cannot become a release."""
    number = _numbers(version)
    if _git(root, "status", "--porcelain"):
        sys.exit(
            "there are changes that are not committed; commit them or put them away"
        )
    if _git(root, "tag", "--list", f"v{version}"):
        sys.exit(f"v{version} is there already; a version is released once")
    texts = {CHANGELOG: dated((root / CHANGELOG).read_text(), version, date)}
    for name, pattern in VERSIONED.items():
        text = (root / name).read_text()
        found = pattern.search(text)
        if found is None:
            sys.exit(f"{name} has no version")
        if _numbers(found["version"]) > number:
            sys.exit(f"{name} is at {found['version']}; {version} is older")
        start, end = found.span("version")
        texts[name] = text[:start] + version + text[end:]
    return texts


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.fullmatch(version)
    if found is None:
        sys.exit(f"a version is three numbers such as 1.2.3, got {version!r}")
    return tuple(map(int, found.groups()))


def _build(root: Path, version: str) -> None:
    """Build both into an empty `dist/`, with the tools of this environment alone."""
    shutil.rmtree(root / "dist", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=root, check=True)
    wanted = {f"millstream-{version}-py3-none-any.whl", f"millstream-{version}.tar.gz"}
    made = {path.name for path in (root / "dist").iterdir()}
    if made != wanted:
        sys.exit(f"dist/ should have {sorted(wanted)}, has {sorted(made)}")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607 - the one on the path
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    (wanted_version,) = sys.argv[1:] or [""]
    release(Path.cwd(), wanted_version, f"{datetime.now(UTC):%Y-%m-%d}")
    print(
        f"Made v{wanted_version} and dist/. Look at both, then push the branch with\n"
        "`git push --follow-tags` and upload what is in dist/."
    )
