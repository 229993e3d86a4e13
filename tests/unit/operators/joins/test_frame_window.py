"""The window join of frames by hand: what a random test would hardly hit."""

from __future__ import annotations

from tests.support.frame_joining import FrameBench, spec_of

from millstream.plan.joins import LEFT, RIGHT, How, JoinWindow
from millstream.testing import ManualClock


def test_what_a_slower_task_had_not_told_survives_a_cut_before_time_goes_on() -> None:
    """It is due when it is restored, and the next snapshot says that time is further."""
    bench = FrameBench(spec_of(JoinWindow(How.INNER, 10, 10)), ManualClock())
    bench.resize(2)
    for key in range(8):
        bench.give([(key, 5, 100 + key)], LEFT)
        bench.give([(key, 6, 200 + key)], RIGHT)
    quick = bench.tasks[0]
    bench._take(quick, quick.advance(30))
    assert 0 < bench.rows.total() < 8, "both tasks have keys"

    bench.resize(1)
    bench._take(bench.tasks[0], [bench.tasks[0].flush()])
    bench.crash()
    bench.advance(30)
    bench.finish()

    assert bench.rows.total() == len(bench.rows) == 8
