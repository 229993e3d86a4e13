"""Whose an output directory is: a note in it that names one sink of one job.

The note, ``.millstream-claim``, says which sink of which job writes here, and where that
job keeps its snapshots.  It outlives the driver, however that ends, and goes when the job
is complete or can not be gone on with.  On a local disk the driver that works also holds a
lock on it, which ends with its process; elsewhere the note says whether it is at work.

The same job takes its note up again.  Another one takes the note only of a job that does
not run and that nobody can go on with, or where it is told to overwrite.

Nothing here knows what is written to the directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING

from millstream.credentials import shown
from millstream.errors import UsageError
from millstream.state.files import RemoteFiles
from millstream.state.guard import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["CLAIM_NAME", "Claim", "LocalClaims", "RemoteClaims"]

CLAIM_NAME = ".millstream-claim"
_TRIES_MAX = 20
_NOTE_BYTES_MAX = 65_536
_NOTE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Claim:
    """Who writes to a directory.

    Attributes
    ----------
    state
        Where the job keeps its snapshots; empty if nobody can go on with it.
    made_directory
        Whether the directory was not there before.
    heir_of
        Jobs that wrote here before and that this one went on from, oldest first.
    """

    job: str
    sink: str
    state: str = ""
    host: str = ""
    pid: int = 0
    is_running: bool = True
    made_directory: bool = False
    heir_of: tuple[str, ...] = ()

    @classmethod
    def of_this_process(cls, job: str, sink: str, state: str) -> Claim:
        """Return the claim of a driver in this process."""
        return cls(job, sink, state, socket.gethostname(), os.getpid())

    @property
    def flow(self) -> str:
        """The name of the flow, which a job's id begins with."""
        return self.job.rpartition("-")[0]

    def inherits(self, old: Claim, *, overwrite: bool) -> bool:
        """Whether what another job left in the directory can go: nobody will want it."""
        if old.job == self.job:
            return False
        return overwrite or old.state in {"", self.state}

    def after(self, old: Claim | None, *, is_resumed: bool) -> Claim:
        """Return the claim as it follows the one that was there."""
        if old is None:
            return self
        before = [*old.heir_of, old.job] if is_resumed else []
        return replace(
            self,
            made_directory=self.made_directory or old.made_directory,
            heir_of=tuple(job for job in before if job != self.job),
        )

    def to_bytes(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Claim | None:
        """Return what JSON says, or None if it says nothing, or no claim."""
        try:
            said = json.loads(data)
            claim = cls(**{**said, "heir_of": tuple(said.get("heir_of", ()))})
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        known = cls("", "")
        if any(
            type(getattr(claim, f.name)) is not type(getattr(known, f.name))
            for f in fields(cls)
        ):
            return None
        if not all(type(job) is str for job in claim.heir_of):
            return None
        return replace(claim, state=shown(claim.state))


@dataclass(frozen=True, slots=True)
class _Rules:
    """Who may take a directory over."""

    directory: str
    new: Claim
    overwrite: bool
    is_resumed: bool

    def check(self, old: Claim, *, is_running: bool, is_sure: bool = True) -> None:
        """Refuse to take the directory from who has it; `is_sure` that he runs, or not."""
        is_own_job = old.job == self.new.job or (
            old.state != "" and old.state == self.new.state
        )
        if is_own_job and old.sink == self.new.sink and not (is_running and is_sure):
            return
        if is_running:
            raise self.in_use(old, is_sure=is_sure)
        if old.state and self.new.job in old.heir_of:
            msg = (
                f"the output directory {self.directory} belongs to job {old.job} by now, "
                f"which went on from job {self.new.job} and can go on with its state "
                f"directory {old.state}; go on with that one, or name another directory"
            )
            raise UsageError(msg)
        is_heir = self.is_resumed and old.flow == self.new.flow
        if old.state and not self.overwrite and not is_heir:
            msg = (
                f"the output directory {self.directory} belongs to the sink "
                f"{old.sink!r} of job {old.job}, which can go on with its state "
                f"directory {old.state}; finish that job, name another directory, or "
                "pass overwrite=True"
            )
            raise UsageError(msg)

    def in_use(self, old: Claim, *, is_sure: bool) -> UsageError:
        """Return what to tell the second comer."""
        who = (
            f"the sink {old.sink!r} of job {old.job} (process {old.pid} on {old.host})"
        )
        advice = "name another directory for one of them"
        if not is_sure:
            advice += f", or remove {CLAIM_NAME} in it if that job is dead"
        msg = (
            f"the output directory {self.directory} is in use by {who}, and a directory "
            f"belongs to one sink of one job; {advice}"
        )
        return UsageError(msg)


class LocalClaims:
    """The claim on a directory of this machine, or of one that is mounted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / CLAIM_NAME

    def take(
        self, claim: Claim, *, overwrite: bool, is_resumed: bool
    ) -> tuple[Claim | None, Callable[[], None]]:
        """Take the directory; return whose it was, and what lets it go."""
        is_new = not self._directory.exists()
        self._directory.mkdir(parents=True, exist_ok=True)
        rules = _Rules(str(self._directory), claim, overwrite, is_resumed)
        for _ in range(_TRIES_MAX):
            descriptor = os.open(self._path, _NOTE, 0o644)
            try:
                self._refuse_no_file(descriptor)
                if self._is_held(descriptor, rules):
                    old = _noted(descriptor)
                    own = replace(claim, made_directory=is_new)
                    own = own.after(old, is_resumed=is_resumed)
                    _note(descriptor, own)
                    return old, partial(_leave, descriptor, own)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise rules.in_use(claim, is_sure=False)

    def noted(self) -> Claim | None:
        """Return what the note says."""
        with suppress(FileNotFoundError):
            return Claim.from_bytes(read_regular(self._path, _NOTE_BYTES_MAX))
        return None

    def drop(self) -> None:
        """Remove the note."""
        self._path.unlink(missing_ok=True)

    def _refuse_no_file(self, descriptor: int) -> None:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            msg = (
                f"{self._path} is no regular file; remove it, as a note must lie there"
            )
            raise UsageError(msg)

    def _is_held(self, descriptor: int, rules: _Rules) -> bool:
        """Lock the note and check it; return whether it is still the one in place."""
        is_locking = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            old = _noted(descriptor)
            if old is None:
                return False  # it is being written, or was just removed
            rules.check(old, is_running=True)
        except OSError:
            is_locking = False  # a file system without locks
        old = _noted(descriptor)
        if old is not None:
            is_sure = is_locking and old.host == rules.new.host
            is_running = not is_sure and old.is_running
            rules.check(old, is_running=is_running, is_sure=is_sure)
        with suppress(FileNotFoundError):
            here, there = os.fstat(descriptor), self._path.stat()
            return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
        return False


class RemoteClaims:
    """The claim on a directory behind a URL, where there are no locks."""

    def __init__(self, url: str, shown: str) -> None:
        self._files = RemoteFiles(url)
        self._shown = shown

    def take(
        self, claim: Claim, *, overwrite: bool, is_resumed: bool
    ) -> tuple[Claim | None, Callable[[], None]]:
        """Take the directory; return whose it was, and what notes that nobody runs."""
        rules = _Rules(self._shown, claim, overwrite, is_resumed)
        old = self.noted()
        if old is not None:
            rules.check(old, is_running=old.is_running, is_sure=False)
            claim = claim.after(old, is_resumed=is_resumed)
            self.drop()
        try:
            self._files.publish(CLAIM_NAME, claim.to_bytes())
        except FileExistsError:
            other = self.noted() or claim
            raise rules.in_use(other, is_sure=False) from None
        return old, lambda: self._leave(claim)

    def noted(self) -> Claim | None:
        """Return what the note says."""
        with suppress(FileNotFoundError):
            return Claim.from_bytes(self._files.read(CLAIM_NAME))
        return None

    def drop(self) -> None:
        """Remove the note."""
        self._files.remove(CLAIM_NAME)

    def _leave(self, claim: Claim) -> None:
        """Note that the driver is gone, if the directory is still its own."""
        if self.noted() == claim:
            self.drop()
            with suppress(FileExistsError):
                resting = replace(claim, is_running=False)
                self._files.publish(CLAIM_NAME, resting.to_bytes())


def _leave(descriptor: int, claim: Claim) -> None:
    """Note that the driver is gone, also where no lock says so; then let the lock go."""
    with suppress(OSError):
        _note(descriptor, replace(claim, is_running=False))
    os.close(descriptor)


def _noted(descriptor: int) -> Claim | None:
    return Claim.from_bytes(os.pread(descriptor, _NOTE_BYTES_MAX, 0))


def _note(descriptor: int, claim: Claim) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, claim.to_bytes(), 0)
    os.fsync(descriptor)
