"""Sinks whose writers seal objects of the user's classes, which the driver must read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.connectors.base import Sink, SinkWriter
from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = range(3000)
SPOILT = 2500


HARMS: dict[str, type[BaseException]] = {
    "ModuleNotFoundError": ModuleNotFoundError,
    "SystemExit": SystemExit,
}


@dataclass
class Parcel:
    """What a writer seals; one with a spoilt row cannot be opened again."""

    rows: list[int]
    harm: str

    def __reduce__(self) -> Any:
        return _opened, (self.rows, self.harm)


def _opened(rows: list[int], harm: str) -> Parcel:
    if SPOILT in rows:
        msg = "No module named 'of_the_workers'"
        raise HARMS[harm](msg)
    return Parcel(rows, harm)


@dataclass
class _Writer(SinkWriter[int]):
    harm: str
    rows: list[int] = field(default_factory=list)

    def write(self, rows: Any) -> None:
        self.rows += rows

    def seal(self, epoch: int) -> Any:
        rows, self.rows = self.rows, []
        return Parcel(rows, self.harm) if self.harm else rows


@dataclass
class Shelf(Sink[int]):
    """Writes a file for every epoch, the same one if it is asked again."""

    place: str
    harm: str = ""

    def open(self, job: str, task: int) -> SinkWriter[int]:
        return _Writer(self.harm)

    def commit(self, job: str, epoch: int, transactions: list[Any]) -> None:
        rows = [
            row
            for each in transactions
            for row in (each.rows if isinstance(each, Parcel) else each)
        ]
        with open(f"{self.place}/{epoch}", "w") as file:  # noqa: PTH123 - it is pickled
            file.writelines(f"{row}\n" for row in rows)


def _flow(place: Path, harm: str = "") -> ms.Flow:
    flow = ms.Flow("parcels")
    flow.from_iterable(ROWS).write(Shelf(str(place), harm), name="shelf")
    return flow


@pytest.mark.parametrize("harm", HARMS)
def test_unreadable_transaction_is_refused_before_a_manifest_needs_it(
    tmp_path: Path, harm: str
) -> None:
    """So the job goes on from its last snapshot once the program is mended."""
    place, state = tmp_path / "shelf", tmp_path / "state"
    place.mkdir()
    settings: dict[str, Any] = {
        "on": "local", "state": state, "snapshot_every": "2ms", "source_batch_rows": 1,
    }  # fmt: skip

    with pytest.raises(SnapshotError) as raised:
        _flow(place, harm).run(workers=2, **settings)

    assert "of 'shelf' sealed cannot be read where the job was started" in str(
        raised.value
    )
    assert f"({harm}: No module named 'of_the_workers')" in str(raised.value)
    _flow(place).run(workers=2, **settings)
    rows = [int(row) for file in place.iterdir() for row in file.read_text().split()]
    assert Counter(rows) == Counter(ROWS)


def test_unreadable_transaction_without_a_state_directory_names_its_sink(
    tmp_path: Path,
) -> None:
    """There is no manifest to keep from harm; the cause is told all the same."""
    with pytest.raises(ms.MillstreamError, match=r"'shelf'.*No module named 'of_the_"):
        _flow(tmp_path, "ModuleNotFoundError").run(on="local", workers=1)
