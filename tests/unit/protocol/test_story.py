"""The story of a job: bounded, in order, and the same for whoever reads it."""

from __future__ import annotations

from tests.support import epoch_cores, job_cores

from millstream.protocol.job_events import (
    CancelRequested,
    Settled,
    WorkerExited,
    WorkerFailed,
    WorkerLost,
    WorkerReady,
)
from millstream.protocol.snapshot_events import (
    CommitFailed,
    Committed,
    FellBack,
    Interrupted,
    Stored,
)
from millstream.protocol.story import Severity, Story


def told(story: Story) -> list[str]:
    story.validate()
    return [entry.text for entry in story.entries()]


def test_warning_outlives_a_thousand_snapshots() -> None:
    """The loss of a worker weeks ago is what an operator looks for."""
    story = Story(entries_max=10)
    story.add(1, "job", "worker 0 was lost", Severity.WARNING)
    for epoch in range(1000):
        story.add(2 + epoch, "snapshots", f"epoch {epoch} opened")

    assert told(story) == [
        "worker 0 was lost",
        *(f"epoch {e} opened" for e in range(990, 1000)),
    ]


def test_warnings_are_bounded_too() -> None:
    """A job that fails for ever keeps no more than its limit."""
    story = Story(entries_max=3)
    for number in range(100):
        story.add(number, "job", f"{number}", Severity.WARNING)

    assert told(story) == ["97", "98", "99"]


def test_entry_is_handed_to_the_log_once() -> None:
    """Whoever logs asks after every step."""
    story = Story()
    story.add(5, "job", "one")

    assert [entry.text for entry in story.untold()] == ["one"]
    assert story.untold() == []
    assert told(story) == ["one"]


def test_long_text_is_cut_to_its_first_line() -> None:
    """A user's exception may have a page to say."""
    story = Story()
    story.add(0, "job", "x" * 1000 + "\nmore")

    assert len(told(story)[0]) == 300


def test_loss_and_recovery_are_told_with_their_reasons() -> None:
    """Who was lost and why, who replaces them, from where the job goes on, how much."""
    driver = job_cores.Driver(restarts_max=3)
    driver.tell(
        job_cores.registered(job_cores.ONE), job_cores.registered(job_cores.TWO)
    )
    driver.tell(WorkerReady(job_cores.ONE), WorkerReady(job_cores.TWO))
    driver.tell(WorkerLost(job_cores.TWO, "reset"), Settled((1, 40)))
    driver.tell(WorkerReady(job_cores.ONE, 1200, 250_000_000))

    assert told(driver.core.story)[-4:] == [
        "worker 1 was lost: reset; worker 2 is started in its place",
        "generation 1 is over: worker 1 was lost: reset",
        "generation 2 is deployed on 1 worker, from epoch 40",
        "generation 2 runs, 1,200 bytes restored in 0.250 s",
    ]


def test_failures_are_counted_in_words() -> None:
    """A retry is told with its limit."""
    driver = job_cores.Driver(restarts_max=3)
    driver.tell(
        job_cores.registered(job_cores.ONE), job_cores.registered(job_cores.TWO)
    )
    driver.tell(WorkerReady(job_cores.ONE), WorkerReady(job_cores.TWO))
    driver.tell(WorkerFailed(job_cores.ONE, job_cores.REPORT))

    assert "OperatorError, 1 of at most 3 in a row: map raised" in told(
        driver.core.story
    )


def test_outcomes_are_told() -> None:
    """The last line says how it ended."""
    failed = job_cores.running()
    failed.tell(WorkerExited(job_cores.ONE, "its process ended"))
    cancelled = job_cores.running()
    cancelled.tell(CancelRequested("enough", 0))

    assert told(failed.core.story)[-1].startswith(
        "the job failed with WorkerLostError: worker 0 was lost: its process ended"
    )
    assert told(cancelled.core.story)[-1] == "the job was cancelled: enough"


def test_epoch_is_told_from_opening_to_commit() -> None:
    """One line each for what an epoch comes to."""
    driver = epoch_cores.storing()
    driver.tell(Stored(1), CommitFailed(1, "locked"), Committed(1))

    assert told(driver.core.story) == [
        "epoch 1 opened",
        "epoch 1 is complete after 0.000 s",
        "epoch 1 is not committed (locked); try 1 of 5, the next in 1e-08 s",
        "epoch 1 is committed",
    ]


def test_abandoned_epoch_says_why() -> None:
    """What costs an epoch is otherwise seen by nobody."""
    driver = epoch_cores.opened()
    driver.at(2 * epoch_cores.INTERVAL)

    last = driver.core.story.entries()[-1]
    assert (
        last.text
        == "epoch 1 is abandoned: tasks 0.0, 1.0 did not seal it within 5e-08 s"
    )
    assert last.severity is Severity.WARNING


def test_falling_back_is_told() -> None:
    """A job that lost its newest snapshot goes on from an older one, not in silence."""
    driver = epoch_cores.Driver(epoch=7)
    driver.tell(Interrupted(is_damaged=True), FellBack(5))

    assert told(driver.core.story) == [
        "epoch 7 is damaged; an older one is looked for",
        "epoch 5 is the newest that is whole: the job falls back to it",
        "the job goes back to epoch 5",
    ]
