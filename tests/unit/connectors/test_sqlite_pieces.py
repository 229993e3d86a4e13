"""Pieces beside a SQLite database: rows that are for whom the database is."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from millstream.connectors.sqlite import SqliteDatabase
from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCOPE = "job/table"


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Let files be made with another umask."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def database(place: Path, mode: int = 0o600) -> tuple[SqliteDatabase, Path]:
    """Return a database of a mode, and where its pieces lie."""
    path = place / "rows.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (n INT)")
    path.chmod(mode)
    return SqliteDatabase(path), place / "rows.db.millstream-job%2Ftable"


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("mode", "file", "folder"),
    [
        (0o600, 0o600, 0o700),
        (0o640, 0o640, 0o750),
        (0o660, 0o660, 0o770),
        (0o644, 0o644, 0o755),
        (0o400, 0o600, 0o700),
    ],
)
def test_pieces_have_the_mode_of_the_database(
    mode: int, file: int, folder: int, tmp_path: Path
) -> None:
    """Whoever may not read the rows there may not read them beside it, nor the reverse."""
    target, pieces = database(tmp_path, mode)
    target.stage(SCOPE, "1", b"rows")
    assert stat.S_IMODE((pieces / "1").stat().st_mode) == file
    assert stat.S_IMODE(pieces.stat().st_mode) == folder
    assert target.staged(SCOPE, "1") == b"rows"


@pytest.mark.timeout(20)
def test_what_is_no_file_is_no_piece(tmp_path: Path) -> None:
    """Neither a pipe, which would let the driver wait, nor a link."""
    target, pieces = database(tmp_path)
    target.stage(SCOPE, "1", b"rows")
    os.mkfifo(pieces / "2")
    (pieces / "3").symlink_to(pieces / "1")
    for piece in "23":
        with pytest.raises(SnapshotError, match="is not a plain file"):
            target.staged(SCOPE, piece)
    assert [target.staged(SCOPE, piece) for piece in "14"] == [b"rows", None]
    with pytest.raises(FileExistsError):
        target.stage(SCOPE, "3", b"other")
    assert target.staged(SCOPE, "1") == b"rows"
    target.discard(SCOPE)
    assert not pieces.exists()


def test_a_link_in_place_of_the_pieces_is_not_followed(tmp_path: Path) -> None:
    """Whoever can write beside the database would have files removed elsewhere."""
    target, pieces = database(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "0").write_text("mine")
    pieces.symlink_to(tmp_path / "theirs")
    uses: list[Callable[[], object]] = [
        lambda: target.stage(SCOPE, "1", b"rows"),
        lambda: target.staged(SCOPE, "0"),
        lambda: target.discard(SCOPE, ["0"]),
        lambda: target.discard_before(SCOPE, "1"),
    ]
    for use in uses:
        with pytest.raises(SnapshotError, match="is not a plain directory"):
            use()
    target.discard(SCOPE)

    assert not pieces.is_symlink()
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["0"]
