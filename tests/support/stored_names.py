"""What stored bytes must not hold: the path of one of our modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PATH = b"millstream."
_BYTES_MAX = 1 << 26
BY_VALUE = b"cloudpickle"
"""Functions of users that are stored whole may refer to anything."""


def files_with_paths(content: Mapping[str, bytes]) -> list[str]:
    """Return the names of stored files in which a module of ours is named."""
    return [
        name for name, data in content.items() if PATH in data and BY_VALUE not in data
    ]


def stored_files(root: Path) -> Iterator[Path]:
    """Yield the files of all state directories below a directory."""
    for folder in ("epochs/*", "manifests"):
        for path in root.rglob(f"{folder}/*"):
            if path.is_file() and path.stat().st_size < _BYTES_MAX:
                yield path
