"""Attacks on the driver by transactions and by links in an output directory."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.databases import SqlitePlace

from millstream.connectors.claims import Claim
from millstream.connectors.files import TextSink
from millstream.connectors.output import Piece, output_to, staged_name, staging_name
from millstream.connectors.parts import Kept, SealedParts
from millstream.connectors.sql import SealedRows, SqlSink
from millstream.connectors.staging import Staging
from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = "job-1"
STAGED, SPENT = staged_name(0, 1), staged_name(1, 1)
NAMES: list[Any] = [
    "../moved_out",
    "/etc/moved_out",
    "part-0/../../moved_out",
    "part-../x",
    "part-a\0",
    "part-a\n",
    "..",
    "",
    b"part-a",
    None,
]


def staging_of(directory: Path) -> Path:
    return directory / staging_name(JOB)


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a path, or a URL of the same promise."""
    return f"{tmp_path}/out" if request.param == "local" else f"memory://{tmp_path}/out"


@pytest.mark.parametrize("name", NAMES)
def test_a_part_does_not_leave_its_directory(place: str, name: Any) -> None:
    """A worker that lies about names moves nothing."""
    sink = TextSink(place)
    sink.prepare(JOB)
    part = sink.output.part(JOB, 0, 1)
    part.finish()
    sealed = SealedParts(1, is_first=False, moves=((part.name, name),))
    with pytest.raises(SnapshotError, match="which no task of this sink can have"):
        sink.commit(JOB, 1, [sealed])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_a_staged_file_is_moved_or_removed(place: str, name: Any) -> None:
    """Neither as a part, nor as a piece that is spent, nor as one to be read."""
    sink = TextSink(place)
    sink.prepare(JOB)
    piece = Piece(place, staging_name(JOB), name, 1)
    folder = Piece(place, name, STAGED, 1)

    def attacks() -> list[Callable[[], object]]:
        return [
            lambda: sink.commit(
                JOB, 1, [SealedParts(1, is_first=False, moves=((name, "part-a"),))]
            ),
            lambda: sink.commit(
                JOB, 1, [SealedParts(1, is_first=False, spent=(name,))]
            ),
            lambda: sink.output.opened(piece),
            lambda: sink.output.opened(folder),
        ]

    for attack in attacks():
        with pytest.raises(SnapshotError, match="which no task of this sink"):
            attack()


def test_what_lies_outside_stays_where_it_is(tmp_path: Path) -> None:
    """The attack of the audit: an absolute path that is moved above the directory."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    sink = TextSink(tmp_path / "out")
    sink.prepare(JOB)
    for spent, moves in (((str(victim),), ()), ((), ((str(victim), "../moved_out"),))):
        with pytest.raises(SnapshotError):
            sink.commit(
                JOB, 1, [SealedParts(1, is_first=False, moves=moves, spent=spent)]
            )

    assert victim.read_text() == "mine"
    assert not (tmp_path / "moved_out").exists()


def test_a_staging_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A job that goes on would write its rows where the link leads."""
    target = tmp_path / "target"
    target.mkdir()
    (target / STAGED).write_text("theirs")
    (tmp_path / "out").mkdir()
    staging_of(tmp_path / "out").symlink_to(target)
    output = output_to(tmp_path / "out")
    for attempt in (
        lambda: output.prepare_again(JOB),
        lambda: output.part(JOB, 0, 1),
        lambda: output.staged(JOB),
        lambda: output.discard(JOB, [STAGED]),
        lambda: output.commit(JOB, [(STAGED, "part-a")], overwrite=False),
        lambda: output.opened(Piece(output.home, staging_name(JOB), STAGED, 1)),
    ):
        with pytest.raises(SnapshotError, match="is not a plain directory"):
            attempt()

    assert [path.name for path in target.iterdir()] == [STAGED]


@pytest.mark.parametrize("ending", ["abort", "complete", "prepare"])
def test_a_link_in_place_of_staging_is_removed_and_not_followed(
    tmp_path: Path, ending: str
) -> None:
    """What it leads to is not Millstream's."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").touch()
    (tmp_path / "out").mkdir()
    staging_of(tmp_path / "out").symlink_to(target)
    options = {"overwrite": True} if ending == "prepare" else {}
    getattr(output_to(tmp_path / "out"), ending)(JOB, **options)

    assert (target / "precious").exists()
    assert not staging_of(tmp_path / "out").is_symlink()


def test_a_staged_file_that_is_a_link_is_neither_shown_nor_read(tmp_path: Path) -> None:
    """Readers of the directory would read what it leads to."""
    victim = tmp_path / "victim"
    victim.write_text("secret")
    output = output_to(tmp_path / "out")
    output.prepare(JOB, overwrite=False)
    (staging_of(tmp_path / "out") / STAGED).symlink_to(victim)
    piece = Piece(output.home, staging_name(JOB), STAGED, 1)

    with pytest.raises(SnapshotError, match="is not a plain file"):
        output.commit(JOB, [(STAGED, "part-a")], overwrite=False)
    with pytest.raises(SnapshotError, match="is not a plain file"):
        output.opened(piece)
    assert not (tmp_path / "out" / "part-a").exists()


def test_rows_that_spark_stages_go_where_nobody_has_put_a_link(tmp_path: Path) -> None:
    """The directory's name follows from that of the state directory."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").touch()
    staging = Staging(str(tmp_path))
    staging.keep_in(None, "label")
    place = Path(staging.make())
    place.rmdir()
    place.symlink_to(target)
    for attempt in (staging.make, staging.find):
        with pytest.raises(SnapshotError, match="is not a plain directory"):
            attempt()
    staging.remove()

    assert (target / "precious").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")
def test_rows_that_another_user_staged_are_not_read(tmp_path: Path) -> None:
    """He may have made the directory before the first run, or after the last."""
    staging = Staging(str(tmp_path))
    staging.keep_in(None, "label")
    place = staging.make()
    assert staging.find() == place
    os.chown(place, 65534, 65534)

    with pytest.raises(SnapshotError, match="belongs to another user"):
        staging.find()


@pytest.mark.parametrize(
    "note",
    [
        b"[]",
        b"{}",
        b'{"job": 7, "sink": "s"}',
        b'{"job": "j", "sink": "s", "pid": "1"}',
        b'{"job": "j", "sink": "s", "state": null}',
        b'{"job": "j", "sink": "s", "is_running": 1}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_note_that_is_no_claim_is_none(note: bytes) -> None:
    """Whoever can write the directory can write anything there."""
    assert Claim.from_bytes(note) is None


def test_a_claim_names_no_credential() -> None:
    """Neither one that an older Millstream noted."""
    old = Claim("job", "sink", "sftp://bob:hunter2@host/state").to_bytes()
    found = Claim.from_bytes(old)

    assert found is not None
    assert found.state == "sftp://host/state"


def test_pieces_of_a_table_do_not_leave_their_directory(tmp_path: Path) -> None:
    """The digest of what lies elsewhere is easily given along."""
    place = SqlitePlace(tmp_path / "test.db")
    place.run("CREATE TABLE words (word TEXT)")
    victim = tmp_path / "victim"
    victim.write_bytes(pickle.dumps([("planted",)]))
    digest = hashlib.sha256(victim.read_bytes()).hexdigest()
    sink = SqlSink(place.database, "words", ["word"], name="words")
    sink.prepare(JOB)
    honest = SealedRows("a" * 32, 1, "", [], (("../victim", digest),))
    for name in ("../victim", str(victim), None):
        sealed = honest._replace(pieces=((name, digest),))  # type: ignore[arg-type]
        with pytest.raises(SnapshotError, match="which no task of this sink"):
            sink.commit(JOB, 1, [sealed])

    assert place.run("SELECT * FROM words") == []
    assert victim.exists()


def test_what_writers_name_is_accepted(place: str) -> None:
    """Also names of sinks with letters of their own, at any epoch, once and again."""
    sink = TextSink(place, name="späte Klicks/../x", roll="1B")
    sink.prepare(JOB)
    for epoch in (1, 17):
        writer = sink.open(JOB, 3)
        writer.generation = epoch
        writer.take_back([Kept((), 0, is_blank=False)])
        writer.write(["row"])
        sealed = writer.seal(epoch).work()
        writer.close()
        sink.commit(JOB, epoch, [sealed])
        sink.commit(JOB, epoch, [sealed])
    sink.complete(JOB)

    assert sink.committed_epoch(JOB) == 17


class Swap:
    """Puts a link in the place of a path at the n-th system call that is about files.

    A hook of the interpreter is called before each of them, so a link comes between any
    two that the code makes.
    """

    EVENTS = frozenset(
        {
            "open", "os.chmod", "os.listdir", "os.mkdir", "os.remove", "os.rename",
            "os.rmdir", "os.scandir", "shutil.rmtree",
        }
    )  # fmt: skip

    def __init__(self, path: Path, target: Path, moment: int) -> None:
        self.path, self.target = path, target
        self.left = moment
        self.is_on = False

    def __call__(self, event: str) -> None:
        if not self.is_on or event not in self.EVENTS:
            return
        self.left -= 1
        if self.left == 0:
            self.is_on = False
            with suppress(FileNotFoundError):
                self.path.rename(self.path.with_name(f"aside-{self.path.name}"))
            with suppress(FileNotFoundError):
                self.path.symlink_to(self.target)


_swaps: list[Swap] = []


def _audit(event: str, _: Any) -> None:
    for swap in _swaps:
        swap(event)


@pytest.fixture(scope="module")
def _audited() -> None:
    """Add the hook, which cannot be removed again and does nothing without a swap."""
    sys.addaudithook(_audit)


def prepared(directory: Path) -> TextSink:
    """Return a sink with a part to move, a piece to read and one to remove."""
    sink = TextSink(directory)
    sink.prepare(JOB)
    for name in (STAGED, SPENT):
        (staging_of(directory) / name).write_text("row\n")
    return sink


def move(sink: TextSink) -> None:
    sealed = SealedParts(
        9, is_first=True, moves=((STAGED, "part-a"),), spent=(SPENT,), held=()
    )
    sink.commit(JOB, 1, [sealed])


def read(sink: TextSink) -> None:
    piece = Piece(sink.output.home, staging_name(JOB), STAGED, 1)
    with sink.output.opened(piece) as file:
        assert file.read() == b"row\n"


def write(sink: TextSink) -> None:
    part = sink.output.part(JOB, 0, 1)
    part.file.write(b"row\n")
    part.finish()
    part.store()


USES: dict[str, Callable[[TextSink], object]] = {
    "move": move,
    "read": read,
    "write": write,
    "list": lambda sink: sink.output.staged(JOB),
    "remove": lambda sink: sink.output.discard(JOB, [SPENT]),
    "go on": lambda sink: sink.prepare(JOB, is_resumed=True),
    "begin": lambda sink: sink.output.prepare(JOB, overwrite=True),
    "complete": lambda sink: sink.complete(JOB),
    "abort": lambda sink: sink.abort(JOB),
}
MOMENTS = 24
"""More than any of the uses makes system calls."""


@pytest.mark.usefixtures("_audited")
@pytest.mark.parametrize("swapped", ["directory", "file"])
@pytest.mark.parametrize("use", USES)
def test_a_link_that_comes_between_two_steps_leads_nowhere(
    tmp_path: Path, use: str, swapped: str
) -> None:
    """What was looked at is what is used, whatever the name stands for by then."""
    moments = set()
    for moment in range(1, MOMENTS):
        out, target = tmp_path / f"{moment}" / "out", tmp_path / f"{moment}" / "target"
        target.mkdir(parents=True)
        for name in (STAGED, SPENT, "precious"):
            (target / name).write_text("theirs\n")
        sink = prepared(out)
        path, other = staging_of(out), target
        if swapped == "file":
            path, other = path / STAGED, target / "precious"
        swap = Swap(path, other, moment)
        _swaps.append(swap)
        swap.is_on = True
        with suppress(SnapshotError, OSError):
            USES[use](sink)
        swap.is_on = False
        _swaps.remove(swap)
        moments.add(swap.left)

        theirs = {path.name: path.read_text() for path in target.iterdir()}
        assert theirs == dict.fromkeys((STAGED, SPENT, "precious"), "theirs\n")
        shown = [path for path in out.glob("part-*") if "aside" not in path.name]
        assert not [path for path in shown if path.is_symlink()]
        assert not [path for path in shown if path.read_text() != "row\n"]
    assert 0 in moments
    assert max(moments) > 0
