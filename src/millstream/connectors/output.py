"""Output directories whose part files appear when the driver commits, and not before.

Each task writes below ``<directory>/.millstream-<job>/``, which readers of the directory
skip, under names that no other attempt has.  What the commit of a snapshot names is moved
into the directory; what a snapshot says is held back stays; whatever else an older
generation left there is nobody's, and goes with the first commit of a newer one.
``_SUCCESS`` comes last.

Nothing here knows what is in a part, which pieces make one, or when a job is complete.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import quote

from millstream.connectors import remote
from millstream.connectors.confining import confined
from millstream.connectors.paths import local_path
from millstream.credentials import shown
from millstream.errors import SnapshotError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from millstream.connectors.claims import Claim
    from millstream.connectors.paths import StrPath

__all__ = [
    "MADE_DIRECTORY",
    "OLD_PARTS_REMOVED",
    "PART_PREFIX",
    "SUCCESS",
    "Move",
    "Output",
    "Part",
    "Piece",
    "check_empty",
    "file_in_the_way",
    "gone",
    "output_to",
    "part_name",
    "staged_generation",
    "staged_name",
    "staging_name",
]

Move = tuple[str, str]
"""Name of a finished part in the staging directory, and what it is to be called."""


class Piece(NamedTuple):
    """A staged file with some of the rows of a part to come.

    Attributes
    ----------
    home
        The output directory that it was written for.
    folder, name
        Where it is in there.
    """

    home: str
    folder: str
    name: str
    size: int


_STAGING_PREFIX = ".millstream-"
PART_PREFIX = "part-"
SUCCESS = "_SUCCESS"

MADE_DIRECTORY = "made-directory"
"""Marks in the staging directory that the output directory was not there before."""

OLD_PARTS_REMOVED = "old-parts-removed"
"""Marks that the parts now in the directory are new, should a commit be repeated."""

_STAGED = re.compile(r"part-(\d+)-\d+-[0-9a-f]+\.tmp")
_PART = re.compile(r"part-[\w.-]+")
_STAGING = re.compile(r"\.millstream-[\w.%~-]+")
_NAME_CHARACTERS_MAX = 60
_NAME_BYTES_MAX = 180


class Part(ABC):
    """A file of one attempt in the staging directory."""

    #: Its name there.
    name: str
    file: BinaryIO

    @abstractmethod
    def finish(self) -> None:
        """Write what is held back, and close the file."""

    @abstractmethod
    def store(self) -> None:
        """Make the finished file durable."""

    @abstractmethod
    def abandon(self) -> None:
        """Close the file, whatever is lost of it; raises nothing."""


class Output(ABC):
    """A directory that many tasks write parts to, for one job after the other."""

    #: The directory by one spelling, to tell whether two are the same.
    place: str
    #: The directory as it may be stored: a path, or a URL without credentials.
    home: str
    #: What the driver that took the directory has noted in it; what the note says later
    #: may be somebody else's.
    _own: Claim | None = None

    @abstractmethod
    def claim(
        self, claim: Claim, *, overwrite: bool, is_resumed: bool, key: bytes = b""
    ) -> Callable[[], None]:
        """Take the directory for a job, or refuse; return what the driver calls at last."""

    @abstractmethod
    def prepare(self, job: str, *, overwrite: bool) -> None:
        """Make the directory, or check that it has room for the output."""

    @abstractmethod
    def prepare_again(self, job: str) -> None:
        """Make ready for a job that has been here before, or goes on from another."""

    @abstractmethod
    def part(self, job: str, task: int, generation: int) -> Part:
        """Open a file for this attempt; an earlier attempt may still hold its own."""

    @abstractmethod
    def opened(self, piece: Piece) -> BinaryIO:
        """Open a piece for reading, here or where it was written."""

    @abstractmethod
    def commit(self, job: str, moves: list[Move], *, overwrite: bool) -> None:
        """Move finished parts into the directory; safe to repeat.

        Where parts of an earlier run are to go, they go when there is the first new
        part to move: a commit that is repeated after the end has none.
        """

    @abstractmethod
    def is_to_replace(self, job: str) -> bool:
        """Whether a job was here that, if it overwrites, has not removed old parts yet."""

    @abstractmethod
    def discard(self, job: str, names: Collection[str]) -> None:
        """Remove staged files that nobody needs; some may be gone already."""

    @abstractmethod
    def staged(self, job: str) -> list[str]:
        """Return the names of all staged files."""

    def clean(self, job: str, generation: int, needed: Collection[str]) -> None:
        """Remove what attempts of older generations left and nobody needs."""
        self.discard(
            job,
            [
                name
                for name in self.staged(job)
                if name not in needed and staged_generation(name) < generation
            ],
        )

    @abstractmethod
    def complete(self, job: str) -> None:
        """Write ``_SUCCESS``, remove the staging directory and the claim; repeatable."""

    @abstractmethod
    def abort(self, job: str) -> None:
        """Remove what the job wrote, and the directory if the job made it."""

    def _finished_jobs(self, job: str) -> tuple[str, ...]:
        """Return whose staged output nobody needs when a job is complete."""
        own = self._own
        return (job, *own.heir_of) if own is not None and own.job == job else (job,)

    def _has_made(self, job: str) -> bool:
        """Whether the directory was made for a job."""
        own = self._own
        return own is not None and own.job == job and own.made_directory

    @staticmethod
    def checked_moves(moves: list[Move]) -> list[Move]:
        """Refuse to move anything but a staged file to anything but a part."""
        staged = confined(_STAGED, (move[0] for move in moves))
        parts = confined(_PART, (move[1] for move in moves))
        return list(zip(staged, parts, strict=True))

    @staticmethod
    def checked_names(names: Collection[str]) -> list[str]:
        """Refuse names that are not those of staged files."""
        return confined(_STAGED, names)

    @staticmethod
    def checked_piece(piece: Piece) -> Piece:
        """Refuse a piece that is not in a staging directory."""
        confined(_STAGING, [piece.folder])
        confined(_STAGED, [piece.name])
        return piece

    def owns(self, job: str, piece: Piece) -> bool:
        """Whether a piece lies in the staging directory of the job here."""
        return (shown(piece.home), piece.folder) == (self.home, staging_name(job))


def output_to(directory: StrPath) -> Output:
    """Return the output directory of a path or a URL."""
    place = local_path(directory)
    if remote.is_url(place):
        from millstream.connectors.remote_output import RemoteOutput  # noqa: PLC0415

        return RemoteOutput(place)
    from millstream.connectors.local_output import LocalOutput  # noqa: PLC0415

    return LocalOutput(place)


def gone(directory: str, staged: str) -> SnapshotError:
    """Return what to say where finished rows are not where they were."""
    msg = (
        f"cannot commit the output in {directory}: {staged}, which the last snapshot "
        "says is finished, is neither there nor in its place; put it back, write to the "
        "directory that the job wrote to before, or begin with a new state directory"
    )
    return SnapshotError(msg)


def file_in_the_way(directory: str, path: str) -> UsageError:
    """Return what to say where a file is, and a directory should be."""
    msg = (
        f"cannot write to the directory {directory}: {path} is a file; name another "
        "directory"
    )
    return UsageError(msg)


def check_empty(directory: str, names: list[str]) -> None:
    """Refuse a directory that holds anything but what is ours."""
    for name in sorted(names):
        if not name.startswith(_STAGING_PREFIX):
            msg = (
                f"the output directory {directory} is not empty (it holds {name!r}); "
                "remove it, name another, or pass overwrite=True"
            )
            raise UsageError(msg)


def staging_name(job: str) -> str:
    """Return the name of a job's staging directory."""
    return f"{_STAGING_PREFIX}{quote(job, safe='')}"


def staged_name(task: int, generation: int) -> str:
    """Return a name in the staging directory that nobody else has."""
    return f"{PART_PREFIX}{generation}-{task:05}-{secrets.token_hex(8)}.tmp"


def staged_generation(name: str) -> float:
    """Return the generation that staged a file; none is older than what is no part."""
    match = _STAGED.fullmatch(name)
    return float("inf") if match is None else int(match[1])


def part_name(sink: str, task: int, epoch: int, number: int, suffix: str) -> str:
    """Return the name of a part, of which a task may show several in an epoch.

    >>> part_name("late clicks", 3, 17, 1, ".csv")
    'part-late-clicks-00003-000017-0001.csv'
    >>> part_name("write_text", 0, 1, 0, ".txt")
    'part-write_text-00000.txt'
    """
    words = re.sub(r"[^\w.]+", "-", sink)[:_NAME_CHARACTERS_MAX]
    words = words.encode()[:_NAME_BYTES_MAX].decode(errors="ignore")
    name = f"{PART_PREFIX}{words}-{task:05}" if words else f"{PART_PREFIX}{task:05}"
    if epoch > 1 or number:
        name += f"-{epoch:06}"
    if number:
        name += f"-{number:04}"
    return name + suffix
