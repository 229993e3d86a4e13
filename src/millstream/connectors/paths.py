"""Which files a path, a directory, a glob or a list of them names, and opening them.

Local paths are read plainly; ``file://`` names them too.  Any other URL is fsspec's
(`millstream.connectors.remote`).  Nothing here knows what is in a file.
"""

from __future__ import annotations

import glob
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from millstream.connectors import remote
from millstream.credentials import shown
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.connectors.places import Places

__all__ = [
    "FoundFiles",
    "StrPath",
    "asked_for",
    "changed_files",
    "file_size",
    "found_files",
    "local_path",
    "opened_file",
]

StrPath = str | os.PathLike[str]

_LOCAL_SCHEMES = ("file://", "local://")

_ASKED_LETTERS_MAX = 400
_SHOWN_FILES = 3
"""Files that a sentence names; of the others it says how many they are."""


class FoundFiles(list[str]):
    """Files, and the paths that named them, in words."""

    asked: str = ""


def local_path(path: StrPath) -> str:
    """Return a path as text, without the scheme of a URL of a local file."""
    text = os.fspath(path)
    for scheme in _LOCAL_SCHEMES:
        text = text.removeprefix(scheme)
    return text


def found_files(verb: str, paths: StrPath | Iterable[StrPath]) -> FoundFiles:
    """Return each file that the paths name once, as an absolute path or a URL.

    Of a directory these are all files below it whose name, and whose folders' names,
    begin with neither a dot nor an underscore.
    """
    patterns = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not patterns:
        msg = f"{verb} got an empty list of paths; name at least one file"
        raise UsageError(msg)
    found = (file for pattern in patterns for file in _found(verb, local_path(pattern)))
    files = FoundFiles(dict.fromkeys(found))
    files.asked = _in_words([_absolute(local_path(pattern)) for pattern in patterns])
    return files


def asked_for(files: list[str]) -> str:
    """Return the paths that named the files, or the files if nobody knows those."""
    return (
        files.asked
        if isinstance(files, FoundFiles)
        else _in_words([*map(shown, files)])
    )


def changed_files(files: Places, known: Mapping[str, int | None]) -> list[str]:
    """Say which files have come, or have another size, since those were known.

    Parameters
    ----------
    files
        Those that are there now.
    known
        Files that were cut into splits, with their bytes then; None if nobody noted them.
    """
    known = {shown(file): size for file, size in known.items()}
    sizes = {file: file_size(files[file]) for file in files}
    new = [file for file in files if file not in known and sizes[file]]
    others = [
        f"{file} has {sizes[file]} bytes and had {known[file]} when the job began, and "
        "only those are read; begin with a new state directory to read all of it"
        for file in files
        if known.get(file) not in (None, sizes[file])
    ]
    if not new:
        return others
    named = ", ".join(new[:_SHOWN_FILES])
    more = f" and {len(new) - _SHOWN_FILES} more" if len(new) > _SHOWN_FILES else ""
    first = (
        f"{named}{more} came after the job had begun and will not be read; begin with a "
        "new state directory to read all files"
    )
    return [first, *others]


def _in_words(paths: list[str]) -> str:
    """Return a list of paths, a long one by its begin and a digest."""
    text = ", ".join(paths)
    if len(text) <= _ASKED_LETTERS_MAX:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{text[:_ASKED_LETTERS_MAX]}... (in all {len(paths)}, #{digest})"


def _absolute(pattern: str) -> str:
    if remote.is_url(pattern):
        return shown(pattern)
    return os.path.abspath(os.path.expanduser(pattern))  # noqa: PTH100, PTH111


def file_size(path: str) -> int:
    """Return the number of bytes in a file that was there a moment ago."""
    if remote.is_url(path):
        return remote.url_size(path)
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def opened_file(path: str) -> BinaryIO:
    """Open a file for reading; a local one reads no further than it is asked to."""
    if remote.is_url(path):
        return cast("BinaryIO", remote.opened_url(path))
    try:
        return cast("BinaryIO", Path(path).open("rb", buffering=0))
    except OSError as error:
        raise _unreadable(path, error) from error


def _found(verb: str, pattern: str) -> list[str]:
    if remote.is_url(pattern):
        return remote.found_urls(verb, pattern)
    path = _absolute(pattern)
    if os.path.isdir(path):  # noqa: PTH112
        files, looked_in = _files_below(path), path
    elif os.path.exists(path):  # noqa: PTH110
        files, looked_in = [path], path
    else:
        files, looked_in = glob.glob(path, recursive=True), _fixed_part(path)  # noqa: PTH207
    files = sorted(file for file in files if Path(file).is_file())
    if not files:
        msg = (
            f"{verb} found no file for {pattern!r} (looked in {looked_in}); "
            "check the path, which is relative to the driver's working directory"
        )
        raise UsageError(msg)
    for file in files:
        _check_permission(verb, file)
    return files


def _check_permission(verb: str, file: str) -> None:
    if not os.access(
        file, os.R_OK, effective_ids=os.access in os.supports_effective_ids
    ):
        msg = (
            f"{verb} has no permission to read {file}; give it to the user who runs the "
            "driver and the workers"
        )
        raise UsageError(msg)


def _files_below(directory: str) -> list[str]:
    files = []
    for folder, subfolders, names in os.walk(directory):
        subfolders[:] = [name for name in subfolders if _is_shown(name)]
        files += [str(Path(folder, name)) for name in names if _is_shown(name)]
    return files


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "_"))


def _fixed_part(pattern: str) -> str:
    """Return the directory above the first component that is missing or a glob."""
    folder = Path(pattern).parent
    while glob.has_magic(str(folder)) or not folder.is_dir():
        folder = folder.parent
    return str(folder)


def _unreadable(path: str, error: OSError) -> OSError:
    msg = (
        f"cannot read {path}, which was there when the flow was built "
        f"({error.strerror or error}); it must stay, and every worker must see it"
    )
    return type(error)(msg)
