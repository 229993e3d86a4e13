"""Which files a path, a directory, a glob or a list of them names, and opening them.

Local paths are the rule.  A URL such as ``s3://bucket/key`` goes through fsspec, if that
is installed.  Nothing here knows what is in a file.
"""

from __future__ import annotations

import glob
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["StrPath", "file_size", "found_files", "opened_file"]

StrPath = str | os.PathLike[str]


def found_files(verb: str, paths: StrPath | Iterable[StrPath]) -> list[str]:
    """Return each file that the paths name once, as an absolute path or a URL.

    Of a directory these are all files below it whose name, and whose folders' names,
    begin with neither a dot nor an underscore.
    """
    patterns = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not patterns:
        msg = f"{verb} got an empty list of paths; name at least one file"
        raise UsageError(msg)
    found = (file for pattern in patterns for file in _found(verb, os.fspath(pattern)))
    return list(dict.fromkeys(found))


def file_size(path: str) -> int:
    """Return the number of bytes in a file that was there a moment ago."""
    try:
        if _is_url(path):
            system, inner = _file_system(path)
            return int(system.size(inner))
        return Path(path).stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def opened_file(path: str) -> BinaryIO:
    """Open a file for reading; it reads no further ahead than it is asked to."""
    try:
        if _is_url(path):
            system, inner = _file_system(path)
            return cast("BinaryIO", system.open(inner, "rb"))
        return cast("BinaryIO", Path(path).open("rb", buffering=0))
    except OSError as error:
        raise _unreadable(path, error) from error


def _found(verb: str, pattern: str) -> list[str]:
    if _is_url(pattern):
        return _found_remotely(verb, pattern)
    path = os.path.abspath(os.path.expanduser(pattern))  # noqa: PTH100, PTH111
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
    return files


def _found_remotely(verb: str, pattern: str) -> list[str]:
    try:
        system, inner = _file_system(pattern)
        if glob.has_magic(inner):
            files = [file for file in system.glob(inner) if system.isfile(file)]
        elif system.isdir(inner):
            files = [
                file for file in system.find(inner) if _is_shown_below(file, inner)
            ]
        else:
            files = [inner] if system.exists(inner) else []
    except UsageError:
        raise
    except Exception as error:
        msg = f"{verb} cannot look for {pattern!r}: {error}"
        raise UsageError(msg) from error
    if not files:
        msg = f"{verb} found no file for {pattern!r}; check the URL"
        raise UsageError(msg)
    return sorted(system.unstrip_protocol(file) for file in files)


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path inside it."""
    try:
        url_to_fs = importlib.import_module("fsspec.core").url_to_fs
    except ImportError:
        msg = (
            f"reading {url!r} needs fsspec, which is not installed; install it with the "
            "file system's own package, or name a local or mounted path"
        )
        raise UsageError(msg) from None
    system, inner = url_to_fs(url)
    return system, inner


def _files_below(directory: str) -> list[str]:
    files = []
    for folder, subfolders, names in os.walk(directory):
        subfolders[:] = [name for name in subfolders if _is_shown(name)]
        files += [str(Path(folder, name)) for name in names if _is_shown(name)]
    return files


def _is_shown_below(file: str, directory: str) -> bool:
    inner = file.removeprefix(directory.rstrip("/"))
    return all(_is_shown(name) for name in inner.split("/") if name)


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "_"))


def _fixed_part(pattern: str) -> str:
    """Return the directory above the first component that is missing or a glob."""
    folder = Path(pattern).parent
    while glob.has_magic(str(folder)) or not folder.is_dir():
        folder = folder.parent
    return str(folder)


def _is_url(path: str) -> bool:
    return "://" in path


def _unreadable(path: str, error: OSError) -> OSError:
    msg = (
        f"cannot read {path}, which was there when the flow was built "
        f"({error.strerror or error}); it must stay, and every worker must see it"
    )
    return type(error)(msg)
