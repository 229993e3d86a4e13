"""The two kinds of batches: lists of rows, and Polars data frames.

Both have a length and can be sliced; what differs between them is here.  Polars is
imported only once there is a data frame, because it takes a while to load.
"""

from __future__ import annotations

import io
from itertools import chain
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from millstream.values import Batch, Rows

__all__ = [
    "ARROW_MAGIC",
    "arrow_bytes",
    "as_rows",
    "frame_from_arrow",
    "joined",
    "own_lock",
]

ARROW_MAGIC = b"\xff\xff\xff\xff"
"""What an Arrow IPC stream begins with; no stored value begins so."""


def joined(parts: Sequence[Batch]) -> Batch:
    """Return the batches as one, in order; all are of the kind of the first."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return list(chain.from_iterable(parts))
    import polars as pl  # noqa: PLC0415 - see above

    return pl.concat(cast("Sequence[pl.DataFrame]", parts))


def as_rows(batch: Batch) -> Rows:
    """Return the rows of a batch; those of a data frame are tuples."""
    return batch if isinstance(batch, list) else batch.rows()


def own_lock(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the same columns as another object, which may be written.

    Polars keeps an object locked while it writes it, and waits for the interpreter
    meanwhile; a thread that has the interpreter and looks at the same object would wait
    for that lock for ever.  Snapshots are stored by a thread of their own.
    """
    return frame.clone()


def arrow_bytes(frame: pl.DataFrame) -> bytes:
    """Return a data frame as an Arrow IPC stream."""
    stream = io.BytesIO()
    own_lock(frame).write_ipc_stream(stream)
    return stream.getvalue()


def frame_from_arrow(data: bytes | memoryview) -> pl.DataFrame:
    """Read a data frame from an Arrow IPC stream; the bytes are copied."""
    import polars as pl  # noqa: PLC0415 - see above

    return pl.read_ipc_stream(io.BytesIO(data))
