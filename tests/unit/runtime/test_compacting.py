"""Compaction: when it is due, and what its bases replace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.protocol.messages import Compacted
from millstream.runtime.compacting import Compactions, stages_to_compact
from millstream.state.manifest import FileRef

if TYPE_CHECKING:
    from collections.abc import Iterable

MEBIBYTE = 1 << 20


def base(epoch: int = 1, task: int = 0, stage: int = 0, length: int = 10) -> FileRef:
    return FileRef(
        f"base-{epoch}-{stage}-{task}",
        length,
        sha256="d1",
        operators=("count",),
        is_base=True,
        epoch=epoch,
        since=0,
        stage=stage,
        task=task,
    )


def delta(epoch: int, task: int = 0, stage: int = 0, length: int = 10) -> FileRef:
    name = f"delta-{epoch}-{stage}-{task}"
    whole = base(epoch, task, stage, length)
    return replace(whole, name=name, is_base=False, since=epoch - 1)


def deltas(epochs: Iterable[int], **whose: int) -> list[FileRef]:
    return [delta(epoch, **whose) for epoch in epochs]


def merged(epoch: int, task: int = 0, stage: int = 0, problem: str = "") -> Compacted:
    file = None if problem else (f"merged-{epoch}-{stage}-{task}", 5, "d1", ("count",))
    return Compacted(1, 1, epoch, stage, task, file, problem)


def names(files: Iterable[FileRef]) -> list[str]:
    return [ref.name for ref in files]


# When.


@pytest.mark.parametrize(
    ("files", "is_due"),
    [
        ([base(length=5 * MEBIBYTE), delta(2, length=5 * MEBIBYTE)], False),
        ([base(length=5 * MEBIBYTE), delta(2, length=5 * MEBIBYTE + 1)], True),
        ([base(), delta(2, length=MEBIBYTE)], False),
        ([base(), delta(2, length=MEBIBYTE + 1)], True),
        ([base(), *deltas(range(2, 34))], False),
        ([base(), *deltas(range(2, 35))], True),
        ([base(), base(task=1), *deltas(range(2, 35))], False),
        ([], False),
    ],
    ids=["as-heavy", "heavier", "small", "no-longer-small", "few", "many",
         "few-per-task", "nothing"],
)  # fmt: skip
def test_stage_is_due_when_deltas_outweigh_bases_or_are_many(
    files: list[FileRef], *, is_due: bool
) -> None:
    """Small deltas are left alone until a restore would read too many of them."""
    assert stages_to_compact(files) == ({0} if is_due else set())


def test_stages_are_judged_one_by_one() -> None:
    """The state of one says nothing about another."""
    files = [base(), base(stage=1), *deltas(range(2, 40), stage=1)]

    assert stages_to_compact(files) == {1}


# What.


def begun() -> tuple[Compactions, tuple[FileRef, ...]]:
    """Return compactions of a stage of two tasks, begun at epoch 3."""
    files = (
        base(task=0), base(task=1), base(stage=7), *deltas((2, 3)),
        *deltas((2, 3), task=1),
    )  # fmt: skip
    compactions = Compactions(deltas_max=1)
    assert compactions.begin(files, 3) == (0,)
    return compactions, files


def test_bases_replace_the_files_only_when_every_task_has_merged() -> None:
    """Half a stage of bases and half of deltas would be twice the same rows."""
    compactions, files = begun()

    compactions.add(merged(3, task=1))
    assert compactions.applied(files) == files
    compactions.add(merged(3, task=0))

    assert names(compactions.applied(files)) == [
        "merged-3-0-0",
        "merged-3-0-1",
        "base-1-7-0",
    ]


def test_deltas_written_meanwhile_come_behind_the_bases() -> None:
    """They build on what the bases hold."""
    compactions, files = begun()
    for task in (0, 1):
        compactions.add(merged(3, task=task))

    applied = compactions.applied((*files, delta(4), delta(5, task=1)))

    assert names(applied)[-2:] == ["delta-4-0-0", "delta-5-0-1"]
    assert not {"delta-3-0-0", "base-1-0-0"} & set(names(applied))
    assert applied[0] == replace(base(3), name="merged-3-0-0", length=5)


def test_stage_is_not_begun_twice_at_once() -> None:
    """Its tasks are busy with the first."""
    compactions, files = begun()

    assert compactions.begin((*files, delta(4)), 4) == ()


def test_merge_that_failed_is_begun_again_later() -> None:
    """Nothing is lost: the files before are all still listed."""
    compactions, files = begun()
    compactions.add(merged(3, task=0))
    compactions.add(merged(3, task=1, problem="disk full"))

    assert compactions.applied(files) == files
    assert compactions.begin(files, 5) == (0,)


def test_base_of_an_earlier_attempt_is_not_taken_for_one_of_this() -> None:
    """It lacks the deltas that came between."""
    compactions, files = begun()
    compactions.add(merged(3, task=0, problem="disk full"))
    compactions.begin(files, 5)

    for task in (0, 1):
        compactions.add(merged(3, task=task))

    assert compactions.applied(files) == files


def test_bases_count_until_a_manifest_lists_them() -> None:
    """A manifest that could not be written is tried again with the same bases."""
    compactions, files = begun()
    for task in (0, 1):
        compactions.add(merged(3, task=task))

    assert compactions.applied(files) == compactions.applied(files) != files
    compactions.settle()

    assert compactions.applied(files) == files


def test_bases_finished_while_a_manifest_is_written_wait_for_the_next() -> None:
    """They were forgotten with those it lists, again and again if the disk was slow."""
    compactions, files = begun()
    compactions.add(merged(3, task=0))
    assert compactions.applied(files) == files
    compactions.add(merged(3, task=1))

    compactions.settle()

    assert compactions.applied(files) != files


def test_base_that_no_manifest_lists_yet_is_kept_from_the_garbage() -> None:
    """Files are kept from the oldest compaction under way on."""
    compactions, _ = begun()

    assert compactions.oldest_epoch(9) == 3
    compactions.clear()
    assert compactions.oldest_epoch(9) == 9


def test_recovery_forgets_what_was_under_way() -> None:
    """The tasks that were merging are gone."""
    compactions, files = begun()
    compactions.add(merged(3, task=0))
    compactions.clear()
    compactions.add(merged(3, task=1))

    assert compactions.applied(files) == files
