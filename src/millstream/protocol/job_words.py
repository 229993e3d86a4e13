"""What the core of a job says of its decisions, where that takes more than a few words.

Text from numbers; when something is said is decided in `millstream.protocol.job`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from millstream.protocol.job_events import OutcomeKind
from millstream.protocol.story import Severity

if TYPE_CHECKING:
    from millstream.protocol.job_events import Outcome
    from millstream.protocol.messages import Deploy

__all__ = [
    "deployed_words",
    "loss_words",
    "outcome_words",
    "restored_words",
    "unconnected_words",
    "unregistered_words",
    "unreleased_words",
]


def deployed_words(deploy: Deploy) -> str:
    """Say that a generation is deployed, where and from which epoch.

    Examples
    --------
    >>> from millstream.protocol.messages import Deploy
    >>> deployed_words(Deploy(2, ((1, "host", 7000),), (1, 1), (1, 40)))
    'generation 2 is deployed on 1 worker, from epoch 40'
    """
    count, epoch = len(deploy.members), deploy.snapshot[1]
    assert count > 0, f"generation {deploy.generation} is deployed nowhere"
    workers = f"{count} worker{'' if count == 1 else 's'}"
    origin = f"epoch {epoch}" if epoch else "the beginning"
    return f"generation {deploy.generation} is deployed on {workers}, from {origin}"


def restored_words(restored: list[tuple[int, int]]) -> str:
    """Say how many bytes workers restored, and how many nanoseconds the slowest took.

    Examples
    --------
    >>> restored_words([(1000, 250_000_000), (200, 1_000_000)])
    ', 1,200 bytes restored in 0.250 s'
    """
    size = sum(each for each, _ in restored)
    longest_ns = max((each for _, each in restored), default=0)
    assert min(size, longest_ns) >= 0, f"{restored} was restored"
    return f", {size:,} bytes restored in {longest_ns / 1e9:.3f} s" if size else ""


def outcome_words(outcome: Outcome) -> tuple[str, Severity]:
    """Say how the job ended, and how much that matters."""
    match outcome.kind:
        case OutcomeKind.SUCCEEDED:
            return "the job succeeded", Severity.INFO
        case OutcomeKind.CANCELLED:
            return f"the job was cancelled: {outcome.reason}", Severity.INFO
        case OutcomeKind.STOPPED:
            assert outcome.reason, "a job is stopped behind an epoch"
            return f"the job was stopped behind {outcome.reason}", Severity.INFO
        case OutcomeKind.FAILED:
            assert outcome.error, f"it failed without an error: {outcome.reason}"
            text = f"the job failed with {outcome.error}: {outcome.reason}"
            return text, Severity.ERROR
    assert_never(outcome.kind)


def loss_words(lost: str) -> str:
    """Say that a job without snapshots ends because of a loss."""
    return (
        f"{lost}; the job stopped because it keeps no snapshots to go on from; start it "
        "with state='a/directory' to survive this"
    )


def unreleased_words(grace_ns: int) -> str:
    """Say that workers are ended, because they did not leave by themselves."""
    assert grace_ns >= 0, f"workers had {grace_ns} ns to leave"
    return f"not all workers left within {grace_ns / 1e9:g} s; they are ended"


def unregistered_words(count: int, wanted: int, launch_ns: int) -> str:
    """Say that workers did not come in time."""
    assert 0 <= count < wanted, (
        f"{count} of {wanted} workers came, and some are missing"
    )
    return (
        f"only {count} of {wanted} workers registered within {launch_ns / 1e9:g} s; free "
        f"{wanted - count} more task slots in Spark, ask for fewer workers, or raise "
        "the setting 'launch_timeout_ms'"
    )


def unconnected_words(ready: int, wanted: int, launch_ns: int) -> str:
    """Say that workers did not reach each other in time."""
    assert 0 <= ready <= wanted, f"{ready} of {wanted} workers are ready"
    return (
        f"only {ready} of {wanted} workers reached all others within "
        f"{launch_ns / 1e9:g} s; check that the executors' hosts can connect to each "
        "other"
    )
