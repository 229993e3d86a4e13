"""Whose an output directory is: a note in it that names one sink of one job.

The note, ``.millstream-claim``, says which sink of which job writes here, and where that
job keeps its snapshots.  It outlives the driver, however that ends, and goes when the job
is complete or can not be gone on with.  On a local disk the driver that works also holds a
lock on it, which ends with its process; elsewhere the note says whether it is at work.

The same job takes its note up again.  Another one takes the note only of a job that does
not run and that nobody can go on with, or where it is told to overwrite.

Everybody must be able to read whose a directory is, so a note without a proof can keep a job
away.  A job with a key believes nothing more without one: an HMAC under a key of its own, or
of a job that shares it, over the directory and all that the note says.

Nothing here knows what is written to the directory.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import socket
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from millstream.credentials import shown
from millstream.errors import UsageError
from millstream.observe.log import logger
from millstream.protocol.handshake import derive_key
from millstream.state.files import RemoteFiles
from millstream.state.guard import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["CLAIM_NAME", "Claim", "LocalClaims", "RemoteClaims", "Taken"]

CLAIM_NAME = ".millstream-claim"
_TRIES_MAX = 20
_NOTE_BYTES_MAX = 65_536
_NOTE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_log = logger("connectors")


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
    proof
        Shows those who have the key of the job that it says so; empty without a key.
    """

    job: str
    sink: str
    state: str = ""
    host: str = ""
    pid: int = 0
    is_running: bool = True
    made_directory: bool = False
    heir_of: tuple[str, ...] = ()
    proof: str = field(default="", compare=False)

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


class Taken(NamedTuple):
    """A directory that was taken.

    Attributes
    ----------
    old
        Whose it was.
    own
        What its note says now.
    leave
        Lets it go.
    """

    old: Claim | None
    own: Claim
    leave: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Rules:
    """Who may take a directory over, and what is believed of the note of another."""

    directory: str
    new: Claim
    overwrite: bool
    is_resumed: bool
    key: bytes
    place: str

    def proved(self, claim: Claim) -> Claim:
        """Return a claim of ours with a proof, if we have a key."""
        return replace(claim, proof=self._proof(claim)) if self.key else claim

    def is_proved(self, old: Claim) -> bool:
        """Whether somebody with our key wrote a claim, for this directory."""
        return not self.key or hmac.compare_digest(
            old.proof.encode(), self._proof(old).encode()
        )

    def followed(self, old: Claim | None, own: Claim) -> Claim:
        """Return our claim as it follows one of which nothing is believed without proof."""
        if old is not None and not self.is_proved(old):
            if old.job == self.new.job:
                _log.warning(
                    "the note %s in %s was not written by job %s, which it names, so "
                    "it is ignored", CLAIM_NAME, self.directory, old.job,
                )  # fmt: skip
            old = replace(old, made_directory=False, heir_of=())
        return self.proved(own.after(old, is_resumed=self.is_resumed))

    def _proof(self, claim: Claim) -> str:
        said = {**asdict(claim), "proof": "", "place": self.place}
        text = json.dumps(said, sort_keys=True).encode()
        return hmac.digest(derive_key(self.key, b"claim"), text, "sha256").hex()

    def check(self, old: Claim, *, is_running: bool, is_sure: bool = True) -> None:
        """Refuse to take the directory from who has it; `is_sure` whether they run."""
        is_own_job = old.job == self.new.job or (
            old.state != "" and old.state == self.new.state
        )
        if is_own_job and old.sink == self.new.sink and not (is_running and is_sure):
            return
        if is_running:
            raise self.in_use(old, is_sure=is_sure)
        if old.state and self.new.job in old.heir_of:
            if not self.is_proved(old):
                raise self._unproved(old)
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

    def _unproved(self, old: Claim) -> UsageError:
        """Return what to tell a job that may have an heir, or have met a forger."""
        msg = (
            f"the note {CLAIM_NAME} in {self.directory} says that job {old.job} went on "
            f"from job {self.new.job} there, which cannot be verified with the key of "
            "this job; go on with the other job if you know it, and else find out who "
            f"writes there, and remove {CLAIM_NAME}"
        )
        return UsageError(msg)

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
        self, claim: Claim, *, overwrite: bool, is_resumed: bool, key: bytes = b""
    ) -> Taken:
        """Take the directory; return whose it was, and what lets it go."""
        is_new = not self._directory.exists()
        self._directory.mkdir(parents=True, exist_ok=True)
        place = str(self._directory.resolve())
        rules = _Rules(str(self._directory), claim, overwrite, is_resumed, key, place)
        for _ in range(_TRIES_MAX):
            descriptor = os.open(self._path, _NOTE, 0o644)
            try:
                self._refuse_no_file(descriptor)
                if self._is_held(descriptor, rules):
                    old = _noted(descriptor)
                    own = rules.followed(old, replace(claim, made_directory=is_new))
                    resting = rules.proved(replace(own, is_running=False))
                    _note(descriptor, own)
                    return Taken(old, own, partial(_leave, descriptor, resting))
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
        self, claim: Claim, *, overwrite: bool, is_resumed: bool, key: bytes = b""
    ) -> Taken:
        """Take the directory; return whose it was, and what notes that nobody runs."""
        shown = self._shown
        rules = _Rules(shown, claim, overwrite, is_resumed, key, place=shown)
        old = self.noted()
        if old is not None:
            rules.check(old, is_running=old.is_running, is_sure=False)
            self.drop()
        own = rules.followed(old, claim)
        try:
            self._files.publish(CLAIM_NAME, own.to_bytes())
        except FileExistsError:
            other = self.noted() or own
            raise rules.in_use(other, is_sure=False) from None
        resting = rules.proved(replace(own, is_running=False))
        return Taken(old, own, partial(self._leave, own, resting))

    def noted(self) -> Claim | None:
        """Return what the note says."""
        with suppress(FileNotFoundError):
            return Claim.from_bytes(self._files.read(CLAIM_NAME))
        return None

    def drop(self) -> None:
        """Remove the note."""
        self._files.remove(CLAIM_NAME)

    def _leave(self, own: Claim, resting: Claim) -> None:
        """Note that the driver is gone, if the directory is still its own."""
        if self.noted() == own:
            self.drop()
            with suppress(FileExistsError):
                self._files.publish(CLAIM_NAME, resting.to_bytes())


def _leave(descriptor: int, resting: Claim) -> None:
    """Note that the driver is gone, also where no lock says so; then let the lock go."""
    with suppress(OSError):
        _note(descriptor, resting)
    os.close(descriptor)


def _noted(descriptor: int) -> Claim | None:
    return Claim.from_bytes(os.pread(descriptor, _NOTE_BYTES_MAX, 0))


def _note(descriptor: int, claim: Claim) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, claim.to_bytes(), 0)
    os.fsync(descriptor)
