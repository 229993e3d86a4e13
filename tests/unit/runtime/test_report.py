"""What a worker tells of an exception: enough to find it, and never more than fits."""

from __future__ import annotations

import pickle

from millstream.protocol.ids import Generation, PeerId
from millstream.runtime.report import failure_report

SIZE = 5_000_000


def test_error_with_a_huge_row_in_it_is_a_report_that_fits() -> None:
    """Else the worker ends without a word, and is lost as if its process had died."""
    error = ValueError(f"not a number: {'x' * SIZE} in the last column")

    report = failure_report(error, PeerId(1), Generation(1), 0)

    assert len(pickle.dumps(report)) < SIZE // 10
    assert "ValueError: not a number:" in report.text
    assert "letters left out" in report.text
    assert report.text.endswith("in the last column")
    assert "test_report.py" in report.details or "ValueError" in report.details
    assert report.cause == b""


def test_ordinary_error_is_told_as_it_is() -> None:
    """Nothing is left out, and its cause travels along."""
    report = failure_report(ValueError("no"), PeerId(1), Generation(1), 3)

    assert report.text == "worker 3: ValueError: no"
    assert str(pickle.loads(report.cause)) == "no"
