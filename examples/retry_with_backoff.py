"""Send messages through a service that often fails, and try again later.

What it shows: a `loop` without rounds.  A message that failed goes round, waits for its turn
in the state of its task, and is tried again; no other message waits for it.  `max_hops` is
there in case that one never gets through.

    millstream run examples/retry_with_backoff.py --on local --workers 2
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import millstream as ms

MESSAGES, TRIES_MAX, MANY = 1_000, 12, 3
LUCK = 0.5


@dataclass(frozen=True)
class Message:
    """What is sent, how often that was tried, and how many turns it still waits."""

    number: int
    tries: int = 0
    wait: int = 0
    is_sent: bool = False


def attempt(message: Message) -> Message:
    """Wait a turn, or try to send; a failure doubles the number of turns to wait."""
    if message.wait:
        return replace(message, wait=message.wait - 1)
    luck = random.Random(message.number * 100 + message.tries)  # noqa: S311 - no secret
    tries = message.tries + 1
    if luck.random() < LUCK or tries == TRIES_MAX:
        return replace(message, tries=tries, is_sent=True)
    return replace(message, tries=tries, wait=min(2**tries, 16))


def deliver(messages: ms.Stream) -> tuple[ms.Stream, ms.Stream]:
    """Let what was not sent go round again."""
    tried = messages.map(attempt)
    return (
        tried.filter(lambda message: not message.is_sent),
        tried.filter(lambda message: message.is_sent),
    )


flow = ms.Flow("retry-with-backoff")
sent = flow.from_iterable([Message(number) for number in range(MESSAGES)]).loop(
    deliver, max_hops=250
)
tries = sent.group_by(lambda message: message.tries).count().collect(dict)

if __name__ == "__main__":
    flow.run()
    counts = tries.result()
    late = sum(count for tried, count in counts.items() if tried > MANY)
    print(f"sent: {sum(counts.values())} of {MESSAGES}")
    print(f"at the first try: {counts[1]}, after more than {MANY}: {late}")
