"""State directories that releases have written are restored for ever, or refused by name.

``python -m tests.golden.snapshots.make`` writes the one of a new format; none is written
anew.
"""

from __future__ import annotations

import hmac
import json
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.golden.snapshots.flows import KEY, PINNED, Gate
from tests.golden.snapshots.make import found, take_back
from tests.support.stored_names import files_with_paths, stored_files

from millstream.errors import SnapshotError
from millstream.protocol.handshake import derive_key
from millstream.state.manifest import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent / "snapshots"
DIRECTORIES = [
    directory for name in PINNED for directory in sorted(HERE.glob(f"v*/{name}"))
]
BYTES_MAX = 200_000
NAMES = (
    "Decimal", "UUID", "array", "behind", "complex", "date", "datetime", "dead letter",
    "decision", "frame", "late row", "nan", "number", "piece",
    "rounds", "sealed parts", "sealed rows", "timedelta", "window", "zone",
)  # fmt: skip
"""What is in the directory of format 4, at least."""


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return what makes a copy of a directory the present one."""

    def copy(directory: Path) -> None:
        shutil.copytree(directory, tmp_path / "copy")
        monkeypatch.chdir(tmp_path / "copy")
        take_back()

    return copy


def test_present_format_has_a_golden_directory() -> None:
    """Who changes the format writes one, and leaves the others."""
    assert {path.name for path in (HERE / f"v{FORMAT}").iterdir()} == set(PINNED)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize(
    "directory", DIRECTORIES, ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_golden_directory_is_gone_on_with(
    directory: Path, workers: int, copied: Callable[[Path], None]
) -> None:
    """By as many workers as wrote it, and by more, to the rows that were expected then."""
    copied(directory)
    expected = json.loads(Path("expected.json").read_text())
    gate = Gate(is_open=True)

    rows = found(PINNED[directory.name], gate, state="state", workers=workers)

    assert rows == expected
    assert gate.begun != 0


@pytest.mark.parametrize("age", [-1, 1])
def test_directory_of_another_format_is_refused_by_name(
    age: int, copied: Callable[[Path], None]
) -> None:
    """In one sentence that says what to do."""
    copied(HERE / f"v{FORMAT}" / "summed")
    for path in Path("state/manifests").iterdir():
        data = bytearray(path.read_bytes()[:-32])
        struct.pack_into(">H", data, 4, FORMAT + age)
        path.write_bytes(
            data + hmac.digest(derive_key(KEY, b"manifest"), data, "sha256")
        )

    word = "an older" if age < 0 else "a newer"
    message = (
        f"it was written by {word} Millstream, in format {FORMAT + age}, and this one "
        f"reads format {FORMAT}; go on with the release that wrote it, or begin with a "
        "new state directory"
    )
    with pytest.raises(SnapshotError, match=message):
        found(PINNED["summed"], Gate(is_open=True), state="state")


def is_named(name: str, data: bytes) -> bool:
    """Whether bytes have a short text, as msgpack or as a pickle writes it."""
    starts = bytes([0xA0 | len(name)]), bytes([0x8C, len(name)])
    return any(start + name.encode() in data for start in starts)


def test_golden_directories_have_what_they_are_for() -> None:
    """All the names that can be had in a small one, and no module of ours."""
    content = {str(path): path.read_bytes() for path in stored_files(HERE / "v4")}
    everything = b"".join(content.values())

    assert [name for name in NAMES if not is_named(name, everything)] == []
    assert files_with_paths(content) == []


@pytest.mark.parametrize("version", sorted({path.parent for path in DIRECTORIES}))
def test_golden_directories_are_small(version: Path) -> None:
    """They are in the repository for ever."""
    sizes = [path.stat().st_size for path in version.rglob("*") if path.is_file()]
    assert sum(sizes) < BYTES_MAX
