"""What the core of a job knows of one worker that has registered.

Plain data; `millstream.protocol.job` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["JobMember"]


@dataclass(slots=True)
class JobMember:
    """One worker, also after it is gone: nobody gets its id again."""

    host: str
    port: int
    heard_ns: int
    is_ready: bool = False
    is_finished: bool = False
    is_gone: bool = False
    #: Bytes of state that it restored, and how long that took in nanoseconds.
    restored: tuple[int, int] = (0, 0)
