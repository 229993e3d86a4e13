"""`make release`, rehearsed in a copy of the repository: built, tagged, installed, imported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools.release import CHANGELOG, dated, release

ROOT = Path(__file__).parents[2]
NOBODY = {
    "GIT_AUTHOR_NAME": "Nobody",
    "GIT_AUTHOR_EMAIL": "nobody@example.org",
    "GIT_COMMITTER_NAME": "Nobody",
    "GIT_COMMITTER_EMAIL": "nobody@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
SMALL = {
    CHANGELOG: "# Changelog\n\n## [Unreleased]\n\n- A fix.\n\n## [1.2.2] - 2030-01-01\n",
    "pyproject.toml": '[project]\nversion = "1.2.2"\n',
    "src/millstream/__init__.py": '__version__ = "1.2.2"\n',
}


@pytest.fixture(autouse=True)
def _by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no setting of this machine sign, or refuse, a commit of a test."""
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def repository(folder: Path, files: dict[str, bytes]) -> Path:
    """Make a repository of these files, in one commit."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "everything")
    return folder


def small(folder: Path, **changed: str) -> Path:
    files = {name: text.encode() for name, text in (SMALL | changed).items()}
    return repository(folder, files)


def copied(folder: Path) -> Path:
    """Copy the repository as it is on the disk, changes that are not committed included."""
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    folder.mkdir()
    return repository(folder, {name: (ROOT / name).read_bytes() for name in names})


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a new environment; return its Python.

    What Millstream needs is that of this environment: nothing is downloaded.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None,
    reason="there is no repository to copy",
)
def test_a_release_can_be_made_installed_and_imported(tmp_path: Path) -> None:
    """The recipe of CONTRIBUTING.md works on the day that it is needed."""
    clone = copied(tmp_path / "clone")
    command = [sys.executable, "tools/release.py", "99.8.7"]
    done = subprocess.run(
        command, cwd=clone, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

    assert git(clone, "describe", "--exact-match").strip() == "v99.8.7"
    assert git(clone, "status", "--porcelain") == ""
    changes = (clone / CHANGELOG).read_text()
    assert re.search(r"\n## \[Unreleased\]\n\n## \[99\.8\.7\] - [\d-]{10}\n", changes)
    wheel = clone / "dist" / "millstream-99.8.7-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as content:
        assert "millstream/py.typed" in content.namelist()
        metadata = content.read("millstream-99.8.7.dist-info/METADATA").decode()
    assert "\nVersion: 99.8.7\n" in metadata
    with tarfile.open(clone / "dist" / "millstream-99.8.7.tar.gz") as packed:
        names = packed.getnames()
    assert {"millstream-99.8.7/Makefile", "millstream-99.8.7/tests/conftest.py"} <= {
        *names
    }
    python = installed(wheel, tmp_path / "fresh")
    code = "import millstream as ms; print(ms.__version__, ms.__file__)"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    said = subprocess.check_output(
        [python, "-c", code], env=environment, text=True, cwd=tmp_path
    )
    assert said.startswith(f"99.8.7 {tmp_path}/fresh/")


def test_what_is_unreleased_belongs_to_the_version() -> None:
    """Older sections stay as they are, and the next change finds its heading."""
    assert dated(SMALL[CHANGELOG], "1.2.3", "2030-04-05") == (
        "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2030-04-05\n\n- A fix.\n\n"
        "## [1.2.2] - 2030-01-01\n"
    )


@pytest.mark.parametrize(
    ("version", "changed", "complaint"),
    [
        ("1.3", {}, "three numbers"),
        ("1.2.1", {}, "1.2.1 is older"),
        ("1.2.3", {CHANGELOG: "## [Unreleased]\n\n## [1.2.2]\n"}, "says nothing"),
        ("1.2.3", {"pyproject.toml": "[project]\n"}, "has no version"),
    ],
)
def test_what_cannot_be_a_release_is_refused(
    tmp_path: Path, version: str, changed: dict[str, str], complaint: str
) -> None:
    """Nothing has been changed then."""
    folder = small(tmp_path, **changed)

    with pytest.raises(SystemExit, match=complaint):
        release(folder, version, "2030-04-05")

    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "tag") == ""


def test_a_version_is_released_once(tmp_path: Path) -> None:
    """Who has the first one would never get the second."""
    folder = small(tmp_path)
    git(folder, "tag", "v1.2.3")

    with pytest.raises(SystemExit, match="is there already"):
        release(folder, "1.2.3", "2030-04-05")


def test_changes_that_are_not_committed_are_not_released(tmp_path: Path) -> None:
    """The tag would name something else than what was built."""
    folder = small(tmp_path)
    (folder / CHANGELOG).write_text("## [Unreleased]\n\n- Another fix.\n")

    with pytest.raises(SystemExit, match="not committed"):
        release(folder, "1.2.3", "2030-04-05")


def test_a_release_that_cannot_be_built_changes_nothing(tmp_path: Path) -> None:
    """What could not be built has no version, no date and no tag."""
    folder = small(tmp_path)

    with pytest.raises(subprocess.CalledProcessError):
        release(folder, "1.2.3", "2030-04-05")

    assert git(folder, "status", "--porcelain") == ""
    assert (folder / CHANGELOG).read_text() == SMALL[CHANGELOG]
    assert git(folder, "tag") == ""
