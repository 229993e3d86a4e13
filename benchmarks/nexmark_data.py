"""The events of `examples.nexmark` in files, as each contestant likes them best.

Rows are pickled, a thousand at a time, in a file per worker; for frames and for Spark
there is a Parquet file each of people, auctions and bids.
"""

from __future__ import annotations

import pickle
from itertools import islice
from typing import TYPE_CHECKING

import polars as pl
from examples.nexmark.events import Auction, Bid, Person

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path

    from examples.nexmark.events import Event
    from examples.nexmark.market import Market

__all__ = ["TABLES", "EventFiles", "write_events"]

BLOCK_ROWS = 1_000
GROUP_ROWS = 64_000
TABLES = {"person": Person, "auction": Auction, "bid": Bid}


def write_events(market: Market, directory: Path, workers: int) -> None:
    """Write all files."""
    for rank in range(workers):
        events = market(rank, workers)
        with (directory / f"{rank}.pickles").open("wb") as file:
            while block := list(islice(events, BLOCK_ROWS)):
                pickle.dump(block, file, protocol=5)
    rows = list(market(0, 1))
    for name, kind in TABLES.items():
        some = [event for event in rows if isinstance(event, kind)]
        frame = pl.DataFrame(some, schema=list(kind._fields), orient="row")
        frame.write_parquet(
            directory / f"{name}.parquet", row_group_size=GROUP_ROWS, statistics=True
        )


class EventFiles(ms.Source["Event"]):
    """Reads the pickled events, each worker its own file."""

    is_bounded = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def splits(self, task_count: int) -> list[ms.Split]:  # noqa: ARG002
        """Return the files."""
        paths = sorted(self._directory.glob("*.pickles"))
        return [ms.Split(path.name, path) for path in paths]

    def open(
        self,
        split: ms.Split,
        offset: int,
        config: ms.Config,  # noqa: ARG002
    ) -> ms.SourceReader[Event]:
        """Return a reader that begins at a byte of the file."""
        return EventReader(split.payload, offset)


class EventReader(ms.SourceReader["Event"]):
    """Reads a block at a time."""

    def __init__(self, path: Path, offset: int) -> None:
        self._file = path.open("rb")
        self._file.seek(offset)

    def read(self, rows: int) -> list[Event] | None:  # noqa: ARG002
        """Return the next block."""
        try:
            block: list[Event] = pickle.load(self._file)  # noqa: S301 - we wrote it
        except EOFError:
            return None
        return block

    @property
    def offset(self) -> int:
        """Where in the file the next block begins."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
