"""How the sources of a job were cut, as the bytes of a file in its state directory.

Splits of Millstream's own sources are stored without a pickle; the payload of somebody
else's is pickled if it is no plain value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.state.plain import PlainCodec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.connectors.base import Split

__all__ = ["STORED_BY_FIELD", "decoded_splits", "encoded_splits"]

STORED_BY_FIELD = (
    "millstream.connectors.base.Split",
    "millstream.connectors.frame_files.ByteRange",
    "millstream.connectors.parquet._RowGroup",
    "millstream.connectors.text._ByteRange",
)
"""Classes by the names that stand in files; a class that moves needs its old name, too."""

_codec = PlainCodec(STORED_BY_FIELD)


def encoded_splits(splits: Mapping[str, Sequence[Split]]) -> bytes:
    """Return the splits of all sources, by their names, as bytes.

    Examples
    --------
    >>> from millstream.connectors.base import Split
    >>> splits = {"read": (Split("rank 0 of 2", (0, 2)),)}
    >>> decoded_splits(encoded_splits(splits)) == splits
    True
    """
    return _codec.encode({name: tuple(parts) for name, parts in splits.items()})


def decoded_splits(data: bytes) -> dict[str, tuple[Split, ...]]:
    """Return the splits of a file that was checked to be ours."""
    found: dict[str, tuple[Split, ...]] = _codec.decode(data)
    return found
