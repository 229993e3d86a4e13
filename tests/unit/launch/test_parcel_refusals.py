"""What cannot be sent to workers is refused with the operator that has it."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import millstream as ms


class Guarded(ms.Sink[int], ms.SinkWriter[int]):
    """A sink with a lock, which is of use where there is one process."""

    is_parallel = False

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def open(self, job: str, task: int) -> ms.SinkWriter[int]:
        return self

    def write(self, rows: list[Any]) -> None:
        with self.lock:
            sys.stdout.write(f"{rows}\n")


def test_sink_that_stays_here_is_named_when_it_should_leave(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Pickle's own words say neither which operator it was nor where."""
    flow = ms.Flow("guarded")
    flow.from_iterable([1, 2]).write(Guarded())

    flow.run(on="local")
    with pytest.raises(
        ms.UsageError, match=r"`write` at test_parcel_refusals.py:\d+, .*lock"
    ):
        flow.run(on="processes")

    assert capsys.readouterr().out == "[1, 2]\n"
