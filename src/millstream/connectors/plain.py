"""Tells files of plain lines from compressed and binary ones, by name and first bytes.

Such a file cannot be cut at any byte, and must not be taken for bad text.  Nothing here
decompresses anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.connectors.paths import found_files
from millstream.credentials import shown
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.connectors.paths import FoundFiles, StrPath

__all__ = ["check_plain", "line_files"]

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4", ".snappy")

_MAGIC = {
    "compressed with gzip": rb"\x1f\x8b\x08",
    "compressed with zstd": rb"\x28\xb5\x2f\xfd",
    "compressed with bzip2": rb"BZh[1-9]1AY&SY",
    "compressed with xz": rb"\xfd7zXZ\x00",
    "compressed with lz4": rb"\x04\x22\x4d\x18",
    "a zip archive": rb"PK\x03\x04",
}
_PARQUET = re.compile(rb"PAR1[\x00-\x1f]")


def line_files(verb: str, paths: StrPath | Iterable[StrPath]) -> FoundFiles:
    """Return the files that the paths name, and refuse those with a compressed name."""
    files = found_files(verb, paths)
    for file in files:
        if file.endswith(_COMPRESSED):
            msg = (
                f"{verb} cannot read the compressed file {shown(file)}; decompress it "
                "first, so that many tasks can read it"
            )
            raise UsageError(msg)
    return files


def check_plain(path: str, data: bytes) -> None:
    """Refuse a file that begins with bytes which no file of lines begins with."""
    for what, magic in _MAGIC.items():
        if re.match(magic, data):
            msg = (
                f"{path} is {what}, whatever its name says; decompress it first, "
                "so that many tasks can read it"
            )
            raise ValueError(msg)
    if _PARQUET.match(data):
        msg = f"{path} is a Parquet file; read it with read_parquet"
        raise ValueError(msg)
