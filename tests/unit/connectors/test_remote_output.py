"""Output directories behind URLs keep what local ones promise, without renames."""

from __future__ import annotations

import pickle
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sinking import sealed
from tests.support.stores import STORES

import millstream as ms
from millstream.connectors.files import JsonLinesSink, TextSink
from millstream.errors import SnapshotError, UsageError

if TYPE_CHECKING:
    from tests.support.stores import Store

    from millstream.connectors.base import Sink

JOB = "job/1 *"

pytestmark = pytest.mark.parametrize("store", STORES, indirect=True)


def write(sink: Sink[Any], task: int, *batches: list[Any], epoch: int = 1) -> Any:
    """Write a part, seal it, and return its transaction."""
    with closing(sink.open(JOB, task)) as writer:
        for batch in batches:
            writer.write(batch)
        return sealed(writer, epoch)


def finish(sink: Sink[Any], *transactions: Any) -> None:
    """Do what the driver does after the last epoch."""
    sink.commit(JOB, 1, list(transactions))
    sink.complete(JOB)


def visible(store: Store) -> dict[str, str]:
    return {
        name: content.decode()
        for name, content in store.found("out").items()
        if not name.startswith(".")
    }


def test_the_commit_makes_all_parts_visible(store: Store) -> None:
    """Until then a reader of the directory sees nothing, and afterwards no rest."""
    sink = TextSink(f"{store.url}/out")
    sink.prepare(JOB)
    parts = [write(sink, 0, ["a", "é"], [], ["b"]), write(sink, 3)]
    before = visible(store)
    sink.commit(JOB, 1, parts)
    committed = visible(store)
    sink.complete(JOB)

    assert before == {}
    assert committed == {"part-00000.txt": "a\né\nb\n", "part-00003.txt": ""}
    assert visible(store) == {"_SUCCESS": "", **committed}
    assert set(store.found("out")) == set(visible(store))


def test_a_part_larger_than_a_request_is_whole(store: Store) -> None:
    """It goes up in pieces that become one object at the end."""
    sink = TextSink(f"{store.url}/out")
    sink.prepare(JOB)
    batch = ["x" * 999] * 10_000
    finish(sink, write(sink, 0, batch, batch, batch, batch))

    assert len(visible(store)["part-00000.txt"]) == 40_000_000


def test_only_the_attempt_that_the_snapshot_names_is_committed(store: Store) -> None:
    """What a killed attempt still uploads harms nobody."""
    sink = TextSink(f"{store.url}/out")
    sink.prepare(JOB)
    killed = sink.open(JOB, 0)
    killed.write(["half"])
    write(sink, 0, ["first"])
    part = write(sink, 0, ["second"])
    killed.close()
    finish(sink, part)

    assert visible(store) == {"_SUCCESS": "", "part-00000.txt": "second\n"}


def test_closing_twice_is_closing_once(store: Store) -> None:
    """The worker closes on every way out."""
    sink = TextSink(f"{store.url}/out")
    sink.prepare(JOB)
    writer = sink.open(JOB, 0)
    writer.write(["a"])
    part = sealed(writer, 1)
    writer.close()
    finish(sink, part)
    writer.close()

    assert set(store.found("out")) == {"_SUCCESS", "part-00000.txt"}


def test_a_commit_that_failed_half_way_can_be_repeated(store: Store) -> None:
    """Parts that were moved already are not taken for old ones, nor missed."""
    store.put("out/part-00009.txt", b"old")
    sink = TextSink(f"{store.url}/out", overwrite=True)
    sink.prepare(JOB)
    parts = [write(sink, 0, ["a"]), write(sink, 1, ["b"])]
    staging, names = staged(store)
    (second,) = [name for name in names if name.startswith("part-0-00001-")]
    content = store.found("out")[f"{staging}/{second}"]
    store.system.rm_file(f"{store.url}/out/{staging}/{second}")
    with pytest.raises(SnapshotError, match="neither there nor in its place"):
        sink.commit(JOB, 1, parts)
    after_failure = visible(store)
    store.put(f"out/{staging}/{second}", content)
    sink.commit(JOB, 1, parts)
    finish(sink, *parts)

    assert after_failure == {"part-00000.txt": "a\n"}
    assert visible(store) == {
        "_SUCCESS": "",
        "part-00000.txt": "a\n",
        "part-00001.txt": "b\n",
    }


def staged(store: Store) -> tuple[str, list[str]]:
    """Return the hidden directory and the names in it."""
    hidden = [name for name in store.found("out") if name.startswith(".")]
    return hidden[0].partition("/")[0], [name.partition("/")[2] for name in hidden]


def test_a_commit_of_parts_that_are_gone_fails(store: Store) -> None:
    """A lost staging directory must not look like an empty result."""
    sink = TextSink(f"{store.url}/out")
    sink.prepare(JOB)
    part = write(sink, 0, ["a"])
    sink.abort(JOB)

    with pytest.raises(SnapshotError, match="neither there nor in its place"):
        sink.commit(JOB, 1, [part])


def test_a_directory_with_content_is_refused(store: Store) -> None:
    """Nobody's files are mixed with ours unless they say so."""
    store.put("out/notes.md", b"mine")

    with pytest.raises(UsageError, match=r"holds 'notes\.md'\); .* overwrite=True"):
        TextSink(f"{store.url}/out").prepare(JOB)

    assert set(store.found("out")) == {"notes.md"}


def test_leftovers_of_a_killed_job_do_not_count_as_content(store: Store) -> None:
    """The user need not clean up after a crash; the same job begins afresh."""
    store.put("out/.millstream-other/prepared", b"")
    sink = TextSink(f"{store.url}/out")
    sink.prepare(JOB)
    write(sink, 5, ["of the killed run"])
    sink.prepare(JOB)
    finish(sink, write(sink, 0, ["a"]))

    assert visible(store) == {"_SUCCESS": "", "part-00000.txt": "a\n"}
    assert ".millstream-other/prepared" in store.found("out")


def test_overwriting_replaces_old_parts_and_nothing_else(store: Store) -> None:
    """The old output stays readable until the new one is complete."""
    store.put("out/part-00000.jsonl", b"old")
    store.put("out/part-00007.txt", b"old")
    store.put("out/_SUCCESS", b"")
    store.put("out/notes.md", b"mine")
    sink = TextSink(f"{store.url}/out", overwrite=True)
    sink.prepare(JOB)
    part = write(sink, 0, ["new"])
    before = visible(store)
    finish(sink, part)

    assert set(before) == {
        *("_SUCCESS", "notes.md", "part-00000.jsonl", "part-00007.txt"),
    }
    assert visible(store) == {
        "_SUCCESS": "",
        "notes.md": "mine",
        "part-00000.txt": "new\n",
    }


def test_a_job_that_goes_on_finds_what_it_had_sealed(store: Store) -> None:
    """The driver died between the snapshot and the commit."""
    sink = TextSink(f"{store.url}/out", overwrite=True)
    sink.prepare(JOB)
    sink.commit(JOB, 1, [write(sink, 0, ["a"])])
    sealed = write(sink, 0, ["b"], epoch=2)

    again = TextSink(f"{store.url}/out", overwrite=True)
    again.prepare(JOB, is_resumed=True)
    again.commit(JOB, 2, [sealed])

    assert visible(store) == {
        "part-00000.txt": "a\n",
        "part-00000-000002.txt": "b\n",
    }


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_complete_job_that_is_started_again_keeps_its_output(
    store: Store, *, overwrite: bool
) -> None:
    """Its last commit is repeated; nothing of it is there to be moved any more."""
    sink = TextSink(f"{store.url}/out", overwrite=overwrite)
    sink.prepare(JOB)
    part = write(sink, 0, ["a"])
    finish(sink, part)

    sink.prepare(JOB, is_resumed=True)
    finish(sink, part)

    assert set(store.found("out")) == {"_SUCCESS", "part-00000.txt"}


@pytest.mark.parametrize("is_there", [True, False])
def test_an_abort_leaves_what_was_there_before(store: Store, *, is_there: bool) -> None:
    """A directory that the job made goes, one that was there stays."""
    if is_there:
        store.put("out/_notes", b"mine")
    sink = JsonLinesSink(f"{store.url}/out", overwrite=True)
    sink.prepare(JOB)
    write(sink, 0, ["a"])
    sink.abort(JOB)
    sink.abort(JOB)

    assert set(store.found("out")) == ({"_notes"} if is_there else set())
    assert store.system.exists(f"{store.url}/out") == is_there


def test_a_file_in_the_way_is_refused(store: Store) -> None:
    """An object and a directory of the same name would confuse everybody."""
    url = store.put("out", b"")

    with pytest.raises(UsageError, match=r"out is a file; name another"):
        TextSink(url).prepare(JOB)


def test_wildcards_in_the_name_are_refused(store: Store) -> None:
    """Moving and removing would touch other files."""
    with pytest.raises(UsageError, match=r"holds one of \*\?\["):
        TextSink(f"{store.url}/out[1]")


def test_a_sink_travels_to_the_workers(store: Store) -> None:
    """It carries the URL, not a connection."""
    sink = TextSink(f"{store.url}/out")
    sink.prepare(JOB)
    finish(sink, write(pickle.loads(pickle.dumps(sink)), 0, ["a"]))

    assert visible(store)["part-00000.txt"] == "a\n"


def test_a_job_that_fails_leaves_nothing_behind(store: Store) -> None:
    """Neither parts nor temporary files."""
    flow = ms.Flow("fails")
    numbers = flow.from_iterable(range(10_000))
    numbers.map(lambda number: str(1 // (9_999 - number))).write_text(
        f"{store.url}/out"
    )

    with pytest.raises(ms.OperatorError):
        flow.run(on="local", workers=2)

    assert store.found("out") == {}
