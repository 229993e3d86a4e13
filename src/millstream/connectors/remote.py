"""Files and directories behind URLs such as ``s3://bucket/key``, by fsspec.

Credentials and endpoints come from where the file system's own package looks for them
(environment variables, configuration files), so that every worker finds them too.

fsspec is imported by the first URL: it takes a while to load.  Local paths never come
here, and nothing here knows what is in a file.
"""

from __future__ import annotations

import glob
import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.credentials import harmless, shown, without_credentials
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from fsspec import AbstractFileSystem

__all__ = [
    "file_system",
    "found_urls",
    "has_magic",
    "is_url",
    "opened_url",
    "restated",
    "url_size",
]

_BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes asked for ahead; a request to a store costs as much as some hundred KiB."""

_KINDS = (FileNotFoundError, PermissionError, IsADirectoryError, TimeoutError)
"""Errors that keep their type when they are said in our words."""


def is_url(path: str) -> bool:
    """Whether a path names a file that is not in the local file system."""
    return "://" in path


def file_system(url: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a URL, with fresh eyes, and the path inside it."""
    from fsspec.core import url_to_fs  # noqa: PLC0415 - takes a while to load

    if "::" in url:
        msg = f"{shown(url)} chains two file systems; name a URL of one of them"
        raise UsageError(msg)
    try:
        system, inner = url_to_fs(url)
    except ImportError as error:
        msg = (
            f"{shown(url)} needs a package that is not installed ({_cause(error, url)}); "
            "install it where the driver and the workers run"
        )
        raise UsageError(msg) from None
    except ValueError as error:
        msg = (
            f"{shown(url)} is no URL that fsspec can open ({_cause(error, url)}); check "
            "its scheme"
        )
        raise UsageError(msg) from None
    except Exception as error:  # noqa: BLE001 - of any package
        what = f"cannot reach {shown(url)}"
        raise restated(error, url, what, "check the URL") from harmless(error, url)
    system.invalidate_cache()
    return system, inner


def found_urls(verb: str, pattern: str) -> list[str]:
    """Return the files that a URL names: one, those below it, or those that match."""
    try:
        system, inner = file_system(pattern)
    except OSError as error:
        raise UsageError(str(error)) from None
    try:
        if has_magic(pattern):
            files = [
                file
                for file in system.glob(inner)
                if _is_matched(file, inner) and system.isfile(file)
            ]
        elif not pattern.endswith("/") and system.isfile(inner):
            files = [inner]
        else:
            files = [file for file in system.find(inner) if _is_shown(file, inner)]
    except Exception as error:  # noqa: BLE001 - of any package
        msg = (
            f"{verb} cannot look for {shown(pattern)!r} ({_cause(error, pattern)}); check "
            "the URL"
        )
        raise UsageError(msg) from harmless(error, pattern)
    if not files:
        msg = f"{verb} found no file for {shown(pattern)!r}; check the URL"
        raise UsageError(msg)
    return sorted(_url(file, pattern, system, inner) for file in files)


def url_size(url: str) -> int:
    """Return the number of bytes in a file."""
    with _reading(url):
        system, inner = file_system(url)
        size = system.size(inner)
    if size is None:
        msg = (
            f"the server of {shown(url)} does not say how long the file is, so it "
            "cannot be cut into parts; copy it to a local or mounted path"
        )
        raise OSError(msg)
    return int(size)


def opened_url(url: str) -> io.RawIOBase:
    """Open a file for reading."""
    with _reading(url):
        system, inner = file_system(url)
        file = system.open(inner, "rb", block_size=_BLOCK_BYTES)
        if not file.seekable() and system.size(inner) == 0:
            file = io.BytesIO()
    return _RemoteFile(url, file)


class _RemoteFile(io.RawIOBase):
    """A file whose every failure is one sentence."""

    def __init__(self, url: str, file: BinaryIO) -> None:
        self._url = url
        self._file = file
        if not file.seekable():
            file.close()
            raise _without_parts(url)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, size: int | None = -1) -> bytes:
        with _reading(self._url):
            try:
                data: bytes = self._file.read(-1 if size is None else size)
            except ValueError as error:
                raise _without_parts(self._url) from harmless(error, self._url)
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def has_magic(url: str) -> bool:
    """Whether a URL is a glob pattern; the query of a web address is none."""
    if url.startswith(("http://", "https://")):
        url = url.partition("?")[0]
    return glob.has_magic(url)


def restated(error: Exception, url: str, what: str, advice: str) -> OSError:
    """Return an error of any package as one sentence, with its type if it is a usual one.

    To be raised from what is `harmless`: the package may repeat credentials of the URL.
    """
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), OSError)
    return kind(f"{what} ({_cause(error, url)}); {advice}")


@contextmanager
def _reading(url: str) -> Iterator[None]:
    try:
        yield
    except (UsageError, io.UnsupportedOperation):
        raise
    except Exception as error:  # noqa: BLE001 - of any package
        raise restated(
            error,
            url,
            f"cannot read {shown(url)}, which was there when the flow was built",
            "it must stay, and every worker must be allowed to read it",
        ) from harmless(error, url)


def _without_parts(url: str) -> io.UnsupportedOperation:
    msg = (
        f"the server of {shown(url)} does not serve parts of files; copy it to a local or "
        "mounted path"
    )
    return io.UnsupportedOperation(msg)


def _cause(error: Exception, url: str) -> str:
    text = str(getattr(error, "strerror", None) or error)
    if isinstance(error, FileNotFoundError) and " " not in text:
        text = "it is not there"
    first = without_credentials(text.partition("\n")[0], url)
    return first.rstrip(".") or type(error).__name__


def _url(file: str, pattern: str, system: AbstractFileSystem, inner: str) -> str:
    """Return the URL of a file; host and user are those of the pattern."""
    before = pattern.rstrip("/").removesuffix(inner)
    if before != pattern.rstrip("/"):
        return before + file
    return str(system.unstrip_protocol(file))


def _is_matched(file: str, pattern: str) -> bool:
    """Whether no wildcard had to stand for a leading dot, as in a shell."""
    fixed = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    return "/." in pattern.removeprefix(fixed) or "/." not in file.removeprefix(fixed)


def _is_shown(file: str, directory: str) -> bool:
    inner = file.removeprefix(directory.rstrip("/"))
    return not any(name.startswith((".", "_")) for name in inner.split("/") if name)
