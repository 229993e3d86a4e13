"""What a task, its worker and the driver do with a sink, one after the other."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from millstream.connectors.base import Later

if TYPE_CHECKING:
    from millstream.connectors.base import Sink, SinkWriter


def sealed(writer: SinkWriter[Any], epoch: int, *, rolls: bool = True) -> Any:
    """Seal what was written to the end; return the transaction."""
    if rolls:
        writer.roll()
    transaction = writer.seal(epoch)
    return transaction.work() if isinstance(transaction, Later) else transaction


def written(sink: Sink[Any], job: str, task: int, *batches: Any, epoch: int = 1) -> Any:
    """Write all rows of a task, seal them, and return the transaction."""
    with closing(sink.open(job, task)) as writer:
        for batch in batches:
            writer.write(batch)
        return sealed(writer, epoch)
