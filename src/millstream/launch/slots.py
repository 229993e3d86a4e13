"""How many workers the task slots of a Spark session can carry.

Numbers in, a number or a refusal out; who counted them is known to `launch.spark`.
"""

from __future__ import annotations

from millstream.errors import UsageError

__all__ = ["check_slots", "workers_beside"]


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
