"""What somebody without the key can do to the snapshots of a directory that they can write.

He can remove things, which is noticed as far as something is left that tells of them.  He
cannot roll a job back, oust its driver or bring in snapshots from elsewhere.
"""

from __future__ import annotations

import logging
import os
from base64 import b64decode
from typing import TYPE_CHECKING
from zlib import decompress

import pytest
from tests.support.snapshots import JOB, KEY, Driver, MemoryFiles

from millstream.errors import SnapshotDamagedError, SnapshotError
from millstream.runtime.takeover import take_over
from millstream.state.files import LocalFiles
from millstream.state.layout import ManifestId, claim_name, origin_name
from millstream.state.notes import DIRECTORY_NAME
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.ports import Files


def started(files: Files, run: str = "run", epochs: int = 0) -> Driver:
    """Return a driver that has made some epochs complete."""
    driver = Driver(SnapshotStore(files, KEY, job=JOB, run=run), run)
    driver.start()
    for _ in range(epochs):
        driver.commit()
    return driver


def opened(files: Files) -> SnapshotStore:
    """Return the store as the next driver finds it."""
    return SnapshotStore(files, KEY, job=JOB, run="next")


def epoch_of(store: SnapshotStore) -> int:
    manifest = store.newest()
    return 0 if manifest is None else manifest.epoch


FORMAT_2 = (
    "eNp9UkFr1EAUTtaiID0UoQcvUi8KwraTZDab9NSTB6EHEbyGl5k32dhsEmYmrr1Zb3pyd0+eu+nS"
    "7YKFCp4EaXvtVejFP6C/QUyyi/TkGwZm5j2+73vfm90Xu0+NltFE6+1P4/6RyGQfdOvwVRbOBpnk"
    "bZYVqT7OE0iDHqjepIPIS8wz1jPnOUhMddDcjFmEKUrQcZaaJUsg7puHskjrfaJ6IHnQQF2tGKd7"
    "uN+ABa9Rqrp+pkHtLfKtUsQJqtGn64cNrtoii7C2KqS21SbVsjaVBo1Xt+5d76AvfOBMCOow17Uo"
    "dBjr2kg59Rwr9AjnYFMk1Bei6/AutRmAR4VNXI+iA+6wbHgvzMqD/5BabfsGKfcEFVYIAMi7YZd0"
    "PN+xXXDc0EfiE9HxPJdTKlyfhuh1XM7AY6EgLnCL2A69QWpOMyEUanUwkQj8XQmb+o0e3T0vw+Zw"
    "5+JI5Ums1fepRFUkWn2cawmpAlZ7rYbjciBjjcbl7UpfVE8n5ciHI8OcJCj0cGyYrc/NW5Dl9YQy"
    "qUajhux8tNRx/C+zVHbCi8Usg75anbKqWCM/s4lT2V/ZYW8QZ5vQbdKZiCQblPVXUVOVFZLhspHy"
    "SS1/LuI0QpnLOK06XGAfTHiGangKUSQxqoA3wv2N6k/8ePnnLN/5Vay/54/XkucPnq2z7uXqo28r"
    "a18/jL/8Tv8CjXkBKg=="
)
"""A manifest as it was written then, deflated, in Base64."""

FORGED = {
    "claim": claim_name(2),
    "origin": origin_name(2, ManifestId(1, 2)),
    "origin from nothing": origin_name(7, ManifestId(0, 0)),
    "another origin of the driver's own claim": origin_name(1, ManifestId(0, 3)),
    "note about an epoch": ManifestId(1, 9).newest_name,
}


@pytest.mark.parametrize("content", [b"", JOB.encode(), bytes(200_000)])
@pytest.mark.parametrize("name", FORGED.values(), ids=FORGED)
def test_name_alone_rolls_nothing_back_and_ousts_nobody(
    name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """``touch claims/…`` was enough once."""
    files = MemoryFiles()
    driver = started(files, epochs=5)
    files.publish(name, content)

    assert epoch_of(opened(files)) == 5
    driver.commit()
    driver.collect(retain=2)
    assert started(files, "next").epoch == 6
    assert f"{name} in memory was not written by a driver" in caplog.text
    with pytest.raises(SnapshotError, match="another driver"):
        driver.commit()


def test_manifest_of_a_higher_claim_ousts_nobody() -> None:
    """A driver is superseded by somebody who took a claim."""
    files = MemoryFiles()
    driver = started(files, epochs=1)
    files.publish(ManifestId(9, 9).name, b"MSMF")
    assert driver.commit().epoch == 2
    assert driver.collect(retain=1) > 0


def test_note_counts_under_its_own_name_only() -> None:
    """A claim that somebody took once is none for ever."""
    files = MemoryFiles()
    started(files, epochs=1)
    driver = started(files, "second", epochs=1)
    files.content[claim_name(3)] = files.content[claim_name(2)]
    assert driver.commit().epoch == 3


def test_numbers_that_nobody_could_count_are_no_claims() -> None:
    """A driver that took the next one could not write it down."""
    files = MemoryFiles({f"claims/{'9' * 40}": b""})
    assert started(files).claim == 1


def test_forged_claim_takes_its_number_along() -> None:
    """Two files cannot have one name, but the next number is free."""
    files = MemoryFiles({claim_name(41): b""})
    assert started(files).claim == 42


def test_snapshots_of_another_directory_do_not_count() -> None:
    """Two jobs may have one key, from the environment."""
    ours, theirs = MemoryFiles(), MemoryFiles()
    started(ours, epochs=1)
    started(theirs, epochs=5)
    for name, content in theirs.content.items():
        ours.content.setdefault(name, content)

    store = opened(ours)

    assert epoch_of(store) == 1
    assert "belongs to another state directory" in store.damage[0]


def test_snapshots_moved_into_a_new_directory_are_refused() -> None:
    """Without the file that names the directory they belong nowhere."""
    theirs = MemoryFiles()
    started(theirs, epochs=2)
    del theirs.content[DIRECTORY_NAME]
    with pytest.raises(SnapshotError, match=f"file `{DIRECTORY_NAME}`.* is missing"):
        opened(theirs).newest()
    assert DIRECTORY_NAME not in theirs.content


def test_directory_of_another_key_is_refused() -> None:
    """Also if it has no snapshots yet."""
    files = MemoryFiles()
    SnapshotStore(files, bytes(32), job=JOB).claim()
    with pytest.raises(SnapshotError, match="written under another key"):
        started(files)


def test_unlinked_newest_manifest_is_noticed() -> None:
    """A job that writes does not go back behind it, any other says that it does."""
    files = MemoryFiles()
    started(files, epochs=5)
    name = ManifestId(1, 5).name
    files.remove(name)

    store = opened(files)

    assert epoch_of(store) == 4
    assert store.damage == [f"epoch 5: {name} is missing"]
    with pytest.raises(SnapshotError, match=rf"{name} and newest/00000005-000001"):
        take_over(opened(files), is_writing=True)
    assert take_over(opened(files), is_writing=False)[1] is not None
    assert started(files, "again").epoch == 4


def test_who_removes_the_note_too_goes_back() -> None:
    """So people do it on purpose; that nobody else does is for the directory's rights."""
    files = MemoryFiles()
    started(files, epochs=5)
    files.remove(ManifestId(1, 5).name)
    files.remove(ManifestId(1, 5).newest_name)
    store = opened(files)
    assert (epoch_of(store), store.damage) == (4, [])


def test_one_note_is_kept() -> None:
    """They do not pile up, over collections and drivers."""
    files = MemoryFiles()
    started(files, epochs=3).collect(retain=2)
    driver = started(files, "second", epochs=3)
    driver.collect(retain=2)
    assert files.names("newest") == [ManifestId(2, 6).newest_name]


def test_note_that_cannot_be_written_gives_no_epoch_up() -> None:
    """The manifest is there; only that it is removed would not be noticed."""

    class Full(MemoryFiles):
        def create(self, name: str, chunks: object) -> None:
            if name.startswith("newest/"):
                raise OSError(28, "No space left on device")
            super().create(name, chunks)  # type: ignore[arg-type]  # passed on

    files = Full()
    started(files, epochs=2)
    assert epoch_of(opened(files)) == 2


def test_file_that_cannot_be_removed_is_in_nobodys_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All others are removed."""

    class Sticky(MemoryFiles):
        def remove(self, name: str) -> None:
            if "stranger" in name:
                raise PermissionError(1, "Operation not permitted")
            super().remove(name)

    files = Sticky({"epochs/00000001/stranger-1.state": b""})
    driver = started(files, epochs=5)
    caplog.set_level(logging.WARNING, "millstream.state")
    assert driver.collect(retain=1) > 0
    assert files.names("manifests") == [ManifestId(1, 5).name]
    assert "1 of " in caplog.text
    assert "epochs/00000001/stranger-1.state" in caplog.text


@pytest.mark.timeout(20)
def test_pipes_and_links_stop_nobody(tmp_path: Path) -> None:
    """Neither a start, nor a collection, and what they lead to is untouched."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "run-1.state").write_text("keep")
    root = tmp_path / "state"
    driver = started(LocalFiles(root), epochs=4)
    os.mkfifo(root / ManifestId(1, 9).name)
    os.mkfifo(root / claim_name(9))
    (root / ManifestId(1, 8).name).symlink_to(root / ManifestId(1, 1).name)
    (root / "epochs/00000001/run-9.state").symlink_to(precious / "run-1.state")
    (root / "epochs/00000009").symlink_to(precious)

    driver.commit()
    assert driver.collect(retain=1) > 0
    assert started(LocalFiles(root), "again").epoch == 5
    assert (precious / "run-1.state").read_text() == "keep"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "link", "large"])
def test_state_file_that_became_something_else_is_damage(
    kind: str, tmp_path: Path
) -> None:
    """An older epoch is used, and it is said."""
    files = LocalFiles(tmp_path)
    driver = started(files, epochs=2)
    assert driver.last is not None
    path = tmp_path / driver.last.files[-1].name
    path.rename(tmp_path / "moved")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "moved")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)

    store = opened(files)

    assert epoch_of(store) == 1
    assert len(store.damage) == 1


def test_manifest_behind_a_link_is_damage(tmp_path: Path) -> None:
    """Nothing in a directory is a link."""
    files = LocalFiles(tmp_path)
    started(files, epochs=2)
    path = tmp_path / ManifestId(1, 2).name
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(SnapshotDamagedError, match="is missing"):
        opened(files).load(ManifestId(1, 2))


def test_directory_of_the_format_before_is_refused_by_name() -> None:
    """Its claims are bare names, which anybody can make, so it is not gone on with."""
    files = MemoryFiles(
        {
            "claims/000001": JOB.encode(),
            "claims/000001-00000000-000000": b"",
            "manifests/00000001-000001.manifest": decompress(b64decode(FORMAT_2)),
        }
    )
    with pytest.raises(SnapshotError, match=r"older Millstream, in format 2.* reads f"):
        started(files)
    assert files.names("claims") == [
        "claims/000001",
        "claims/000001-00000000-000000",
    ]
