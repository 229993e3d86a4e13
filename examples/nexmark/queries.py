"""All queries and their oracles, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from examples.nexmark import joins, oracle, oracle_windows, rowwise, windows, winning

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.nexmark.events import Event
    from examples.nexmark.market import Market

    import millstream as ms

QUERIES: dict[str, Callable[[ms.Stream[Event]], ms.Stream[Any]]] = {
    "q0": rowwise.q0,
    "q1": rowwise.q1,
    "q2": rowwise.q2,
    "q3": joins.q3,
    "q4": winning.q4,
    "q5": windows.q5,
    "q7": windows.q7,
    "q8": joins.q8,
    "q9": winning.q9,
    "q11": windows.q11,
    "q12": windows.q12,
}

ORACLES: dict[str, Callable[[list[Event]], list[Any]]] = {
    "q0": oracle.q0,
    "q1": oracle.q1,
    "q2": oracle.q2,
    "q3": oracle.q3,
    "q4": oracle.q4,
    "q5": oracle_windows.q5,
    "q7": oracle_windows.q7,
    "q8": oracle_windows.q8,
    "q9": oracle.q9,
    "q11": oracle_windows.q11,
    "q12": oracle_windows.q12,
}


def timed(flow: ms.Flow, market: Market) -> ms.Stream[Event]:
    """Let every worker make its part of the events, which say themselves when they were."""
    events = flow.from_parallel(market)
    return events.event_time(
        lambda event: event.at, out_of_order=market.out_of_order_ms
    )
