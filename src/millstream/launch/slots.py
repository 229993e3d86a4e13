"""How many workers the task slots of a Spark session can carry.

Numbers in, a number or a refusal out; who counts them is known to `launch.spark`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from millstream.errors import LaunchError, UsageError
from millstream.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_slots", "settled", "workers_beside"]

_WAIT_S = 0.02
_SETTLE_S = 2.0
_SETTLED_WITHIN_S = 30.0


def settled(count: Callable[[], int], master: str) -> int:
    """Return the number of slots once it has not changed for a while."""
    clock, pause = SystemClock(), threading.Event()
    changed_ns = start_ns = clock.monotonic_ns()
    slots = count()
    while True:
        pause.wait(_WAIT_S)
        now_ns, now = clock.monotonic_ns(), count()
        if now != slots:
            slots, changed_ns = now, now_ns
        if slots and now_ns - changed_ns > _SETTLE_S * 1e9:
            return slots
        if now_ns - start_ns > _SETTLED_WITHIN_S * 1e9:
            msg = (
                f"no executor came to {master} within {_SETTLED_WITHIN_S:g} s; look there "
                "for free cores and memory, or say workers=N to wait longer"
            )
            raise LaunchError(msg)


def check_slots(workers: int, slots: int, busy: int) -> None:
    """Refuse more workers than there are free slots."""
    if workers > slots - busy:
        msg = (
            f"{workers} workers need {workers} task slots, but this Spark session has "
            f"{slots}{_taken(busy)}; ask for fewer workers, or start the session with "
            f"master('local[{workers + busy}]')"
        )
        raise UsageError(msg)


def workers_beside(workers: int | None, spare: int, slots: int, busy: int) -> int:
    """Return how many workers to start so that `spare` slots stay free."""
    free = slots - busy - spare
    asked = workers or 1
    if free < asked:
        fewer = f"ask for {free} workers, or " if free > 0 else ""
        wanted = asked + spare + busy
        msg = (
            "from_spark_stream(trigger=...) runs in Spark beside the workers, so "
            f"{asked} workers need {asked + spare} task slots, but this Spark session has "
            f"{slots}{_taken(busy)}; {fewer}give it {wanted} slots, for example with "
            f"master('local[{wanted}]')"
        )
        raise UsageError(msg)
    return workers or free


def _taken(busy: int) -> str:
    return f", {busy} of them taken by other jobs" if busy else ""
