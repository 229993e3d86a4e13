"""The snapshots of one job in one directory: written, found again, verified, removed.

Theory of operation
-------------------
A driver takes a *claim*, a number that it alone has; the highest claim is *current*.
It looks for the newest manifest, says in the directory from which one it goes on
(`adopt`), and only then writes manifests of its own.  `state.layout` has the rule by
which manifests are ordered.

A driver may be superseded at any moment.  It publishes a manifest and then looks for a
higher claim; a successor takes its claim and then looks for manifests.  So either the
successor sees the manifest, or the predecessor sees the claim and must not commit the
epoch's transactions.

Claims, and where they went on from, are notes (`state.notes`): a name alone says nothing,
as anybody may have made it.  So is, after every manifest, that there was one: if it is gone
and its note is not, somebody has removed it.

Rules
-----
1. Nothing is parsed before it is verified: a manifest by its HMAC and the id of the
   directory, a note likewise, a file by the length and digest in its manifest.
2. What is missing or was changed is *damage*: an older epoch is used, and it is said.
   What cannot be read just now is an error, because it may be readable later.
3. `write_state` and `write_manifest` raise `OSError` if nothing was published: the epoch
   can be given up.  After `SnapshotError` the job must stop.

Nothing here knows operators, workers or clocks.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from millstream.errors import (
    LocalProtocolError,
    SnapshotDamagedError,
    SnapshotError,
)
from millstream.observe.log import logger
from millstream.state.files import TEMPORARY_SUFFIX
from millstream.state.layout import (
    NOTHING,
    ManifestId,
    claim_name,
    history,
    origin_name,
    parsed_listing,
    parsed_newest,
    parsed_state_file,
)
from millstream.state.manifest import decoded_manifest, encoded_manifest
from millstream.state.notes import Notes
from millstream.state.segments import decoded_segments, encoded_segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.ports import Files
    from millstream.protocol.ids import Epoch
    from millstream.state.base import Segment
    from millstream.state.layout import Listing
    from millstream.state.manifest import FileRef, Manifest

__all__ = ["SnapshotStore"]

GARBAGE_FILES_MAX = 1000
"""Files that one collection removes at most; the next one goes on."""

_MANIFEST_BYTES_MAX = 1 << 30

_log = logger("state")


class SnapshotStore:
    """The snapshots of one job.

    Parameters
    ----------
    job
        Name of the job; None to read whatever is there.
    run
        Letters and digits that no other start of a driver has; files of this run that
        no manifest lists yet are not garbage.
    place
        Who works here and where, for whoever finds a copy of the directory.

    Attributes
    ----------
    damage
        What the last call of `newest` found wrong, one sentence each.
    passed_over
        The manifests that it could not use, with what they say if they can be read.

    Examples
    --------
    >>> import tempfile
    >>> from millstream.state.files import LocalFiles
    >>> from millstream.state.key import state_key
    >>> files = LocalFiles(tempfile.mkdtemp())
    >>> store = SnapshotStore(files, state_key(files), job="word-count", run="f3a9")
    >>> store.claim()
    1
    >>> store.newest() is None
    True
    """

    def __init__(
        self,
        files: Files,
        key: bytes,
        *,
        job: str | None = None,
        run: str = "",
        place: str = "",
    ) -> None:
        self.damage: list[str] = []
        self.passed_over: list[tuple[ManifestId, Manifest | None]] = []
        self._key = key
        self._place = place
        #: Small files that only those can write who have the key.
        self.notes = Notes(files, key)
        #: Names of notes that were read and are ours; they never change.
        self._proved: set[str] = set()
        self._job = job
        self._run = run
        self._claim: int | None = None
        #: Which manifest we go on from: our own newest, or the adopted one.
        self._last: ManifestId | None = None
        #: The same in full: the next one builds on it, whatever happens to its file.
        self._live: Manifest | None = None

    @property
    def files(self) -> Files:
        """The directory."""
        return self.notes.files

    @files.setter
    def files(self, files: Files) -> None:
        self.notes.files = files

    # Who may write.

    def claim(self) -> int:
        """Become the driver of this directory; whoever was it before must stop.

        One that is its driver takes the next claim, unless somebody else has.
        """
        self._refuse_foreign()
        self.notes.make_directory()
        while True:
            listing = self._listing()
            if self._claim is not None and self._is_taken_after(self._claim, listing):
                raise self._superseded()
            claim = listing.claim_max + 1
            try:
                self.notes.publish(claim_name(claim), self._place.encode())
            except FileExistsError:
                continue
            self._claim = claim
            return claim

    def is_current(self, claim: int) -> bool:
        """Whether nobody who has the key has taken a higher claim."""
        return not self._is_taken_after(claim, self._listing())

    def newest_claim(self) -> tuple[int, str]:
        """Return the highest claim that a driver has taken, and where it ran; 0 if none."""
        claims = self._listing().claims
        for claim in sorted(claims, reverse=True):
            place = self.notes.read(claim_name(claim))
            if place is not None:
                return claim, place.decode("utf-8", "replace")
        return 0, ""

    @property
    def directory(self) -> bytes:
        """The id of the directory; copies of it have the same."""
        return self.notes.directory

    def adopt(self, manifest: Manifest | None) -> None:
        """Go on from this manifest, or from nothing: what others add to it is a fork.

        Must come before the first manifest of this claim, and before anything is done
        to the sinks.
        """
        claim = self._claimed()
        origin = NOTHING if manifest is None else _id(manifest)
        self.notes.publish(origin_name(claim, origin), b"")
        self._refuse_superseded()
        self._last, self._live = origin, manifest

    # Writing.

    def write_state(self, name: str, segments: Iterable[Segment]) -> tuple[int, str]:
        """Store segments under a new name; return length and digest of the file."""
        return self.write_file(name, encoded_segments(segments))

    def write_file(self, name: str, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Store bytes under a new name; return length and digest of the file."""
        if parsed_state_file(name) is None:
            msg = f"{name!r} is no name of a state file; use `layout.state_name`"
            raise LocalProtocolError(msg)
        measured = _Measured(chunks)
        self.files.create(name, measured)
        return measured.length, measured.digest.hexdigest()

    def write_manifest(self, manifest: Manifest) -> None:
        """Make an epoch complete; all its files must have been written."""
        claim = self._claimed()
        last = self._last
        if manifest.claim != claim or manifest.job != self._job or last is None:
            msg = (
                f"a manifest of job {manifest.job!r} under claim {manifest.claim} cannot "
                f"be written by job {self._job!r} with claim {claim}, origin {last}"
            )
            raise LocalProtocolError(msg)
        if manifest.epoch <= last.epoch:
            msg = f"epoch {manifest.epoch} cannot follow epoch {last.epoch}"
            raise LocalProtocolError(msg)
        self._refuse_superseded()
        data = encoded_manifest(manifest, self._key, self.directory)
        self._publish(_id(manifest), data)
        self._refuse_superseded()
        self._last, self._live = _id(manifest), manifest
        self._note_newest(_id(manifest))

    def _note_newest(self, manifest: ManifestId) -> None:
        """Note that there was a manifest; if that fails, its loss would not be noticed."""
        try:
            self.notes.create(manifest.newest_name, b"")
        except OSError as error:
            _log.warning("cannot write %s (%s)", manifest.newest_name, error)

    def _publish(self, manifest: ManifestId, data: bytes) -> None:
        try:
            self.files.publish(manifest.name, data)
        except FileExistsError:
            # A store may have taken the first of two tries and answered the second.
            if self.files.read(manifest.name) != data:
                raise
        except OSError as error:
            self._withdraw(manifest, error)
            raise

    def _withdraw(self, manifest: ManifestId, error: OSError) -> None:
        """Make sure that a manifest that may have appeared is not there."""
        self._refuse_superseded()
        try:
            self.files.remove(manifest.name)
        except OSError:
            msg = (
                f"cannot tell whether epoch {manifest.epoch} was stored in {self.files} "
                f"({error}); the job stops, and when it is started again it will know"
            )
            raise SnapshotError(msg) from error

    # Reading.

    def manifests(self) -> list[ManifestId]:
        """Return the manifests of the job's history, newest first.

        The first is also there if somebody has removed it and left its note.
        """
        listing = self._listing()
        lost = self._lost(listing.manifests)
        origins = self._origins(listing, lost)
        found = history(listing.manifests, origins)
        newest = history(listing.manifests | lost, origins)[:1]
        return found if newest == found[:1] else [*newest, *found]

    def forks(self) -> list[ManifestId]:
        """Return the manifests that superseded drivers added, which nobody may use."""
        listing = self._listing()
        used = history(listing.manifests, self._origins(listing))
        return sorted(listing.manifests.difference(used))

    def newest(self) -> Manifest | None:
        """Return the newest manifest that is whole with all its files; None if none is.

        To a driver that goes on from a manifest, one that is not there is damaged too.

        Raises
        ------
        SnapshotError
            If there are manifests and none of them can be used, or if the directory
            belongs to another job.
        """
        self.damage, self.passed_over = [], []
        found = self.manifests()
        if self._last is not None and self._last not in {NOTHING, *found}:
            found = [self._last, *found]
        for each in found:
            manifest, problems = self.inspect(each)
            if manifest is not None and not problems:
                return manifest
            self.damage += problems
            self.passed_over.append((each, manifest))
        if found:
            msg = (
                f"none of the {len(found)} snapshots in {self.files} can be used: "
                f"{'; '.join(self.damage)}; put the files back or resume from a savepoint"
            )
            raise SnapshotError(msg)
        return None

    def inspect(self, each: ManifestId) -> tuple[Manifest | None, list[str]]:
        """Return a manifest if it can be read, and all that is wrong with its epoch."""
        try:
            manifest = self.load(each)
        except SnapshotDamagedError as error:
            return None, [str(error)]
        problems = (self._problem(ref, each.epoch) for ref in manifest.references())
        return manifest, [problem for problem in problems if problem]

    def load(self, each: ManifestId) -> Manifest:
        """Return a manifest once it is verified; its files are not looked at."""
        try:
            data = self._read(each.name, _MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            msg = f"epoch {each.epoch}: {each.name} is missing"
            raise SnapshotDamagedError(msg) from None
        try:
            manifest = self._decode(data)
        except SnapshotError as error:
            msg = f"epoch {each.epoch}: {each.name} cannot be used, {error}"
            raise SnapshotDamagedError(msg) from error
        if _id(manifest) != each:
            msg = (
                f"epoch {each.epoch}: {each.name} is the manifest of epoch "
                f"{manifest.epoch} under claim {manifest.claim}"
            )
            raise SnapshotDamagedError(msg)
        if self._job not in {None, manifest.job}:
            msg = (
                f"{self.files} holds the snapshots of job {manifest.job!r}, not of "
                f"{self._job!r}; give each job a state directory of its own"
            )
            raise SnapshotError(msg)
        return manifest

    def read_file(self, ref: FileRef) -> bytes:
        """Return the bytes of a file once they are known to be those of the manifest."""
        data, problem = self._verified(ref)
        if problem:
            raise SnapshotDamagedError(problem)
        return data

    def read_segments(self, ref: FileRef) -> list[Segment]:
        """Return the segments of a state file once it is verified."""
        return decoded_segments(self.read_file(ref))

    # Removing.

    def collect_garbage(self, retain: int, *, oldest_open: Epoch) -> int:
        """Remove what the newest `retain` manifests do not need; return the number of files.

        A manifest that cannot be read is not removed while it is newer than one of
        them: it is the proof that there was an epoch, which may have been committed.

        Parameters
        ----------
        oldest_open
            Files of this run that are named by this epoch or a later one are not touched:
            a manifest may still list them.  Neither are those named by epoch 0.
        """
        assert retain >= 1, "the newest manifest stays"
        # First list, then check: a successor's files come after its claim.
        names = self.files.names("epochs")
        listing = self._listing()
        self._refuse_superseded()
        kept = self._retained(listing, retain)
        doomed = [
            *self._temporary_names(),
            *(each.name for each in sorted(listing.manifests) if each not in kept),
        ]
        needed = self._needed(kept)
        listed = {ref.name for each in needed for ref in each.references()}
        doomed += [
            name
            for name in names
            if name not in listed and self._is_garbage(name, oldest_open)
        ]
        doomed += self._old_notes()
        return self._removed(doomed[:GARBAGE_FILES_MAX])

    def _removed(self, names: list[str]) -> int:
        """Remove files; one of somebody else that cannot be removed is in nobody's way."""
        failures = []
        for name in names:
            try:
                self.files.remove(name)
            except (OSError, SnapshotError) as error:
                failures.append((name, error))
        if failures:
            name, first = failures[0]
            _log.warning(
                "%d of %d old files in %s cannot be removed, the first is %s (%s)",
                len(failures), len(names), self.files, name, first,
            )  # fmt: skip
        return len(names) - len(failures)

    def _old_notes(self) -> list[str]:
        """Return the notes about manifests before the one that we go on from."""
        assert self._last is not None, "a driver has said where it goes on from"
        notes = self.files.names("newest")
        found = ((name, parsed_newest(name)) for name in notes)
        return [name for name, each in found if each is not None and each < self._last]

    def _retained(
        self, listing: Listing, retain: int
    ) -> dict[ManifestId, Manifest | None]:
        """Return the newest manifests of the history, None for those that are damaged."""
        kept: dict[ManifestId, Manifest | None] = {}
        for each in history(listing.manifests, self._origins(listing)):
            try:
                kept[each] = self.load(each)
            except SnapshotDamagedError:
                kept[each] = None
                continue
            retain -= 1
            if retain == 0:
                break
        return kept

    def _needed(self, kept: dict[ManifestId, Manifest | None]) -> list[Manifest]:
        """Return the manifests whose files stay."""
        return [each for each in (*kept.values(), self._live) if each is not None]

    def _is_garbage(self, name: str, oldest_open: Epoch) -> bool:
        file = parsed_state_file(name)
        if file is None:
            return False
        return file.run != self._run or 0 < file.epoch < oldest_open

    def _temporary_names(self) -> list[str]:
        names = [*self.files.names("claims"), *self.files.names("manifests")]
        return [name for name in names if name.endswith(TEMPORARY_SUFFIX)]

    # Pieces.

    def _listing(self) -> Listing:
        # Manifests first: a driver says where it goes on from before it writes one.
        manifests = self.files.names("manifests")
        return parsed_listing(self.files.names("claims"), manifests)

    def _origins(
        self, listing: Listing, lost: frozenset[ManifestId] = frozenset()
    ) -> dict[int, ManifestId]:
        """Return where claims went on from, as far as that says which manifests count."""
        claims = [each.claim for each in listing.manifests | lost]
        least = min(claims, default=0)
        return {
            claim: origin
            for name, (claim, origin) in listing.origins.items()
            if claims and claim >= least and self._is_proved(name)
        }

    def _lost(self, manifests: frozenset[ManifestId]) -> frozenset[ManifestId]:
        """Return manifests that were there, by their notes, and are not."""
        found = ((name, parsed_newest(name)) for name in self.files.names("newest"))
        return frozenset(
            each
            for name, each in found
            if each is not None and each not in manifests and self._is_proved(name)
        )

    def _is_proved(self, name: str) -> bool:
        if name not in self._proved and self.notes.read(name) is not None:
            self._proved.add(name)
        return name in self._proved

    def _is_taken_after(self, claim: int, listing: Listing) -> bool:
        notes = (names for each, names in listing.claims.items() if each > claim)
        return any(self._is_proved(name) for names in notes for name in names)

    def _claimed(self) -> int:
        if self._claim is None:
            msg = "a store writes manifests after it has taken a claim"
            raise LocalProtocolError(msg)
        return self._claim

    def _refuse_superseded(self) -> None:
        if not self.is_current(self._claimed()):
            raise self._superseded()

    def _superseded(self) -> SnapshotError:
        msg = (
            f"another driver has taken over {self.files}, so this one (claim "
            f"{self._claim}) stops; run one driver per job"
        )
        return SnapshotError(msg)

    def _refuse_foreign(self) -> None:
        """Leave a directory alone in which another job lives, or one we cannot verify."""
        problems = []
        for each in self.manifests():
            try:
                self.load(each)
            except SnapshotDamagedError as error:
                problems.append(str(error))
            else:
                return
        if problems:
            msg = (
                f"none of the {len(problems)} manifests in {self.files} can be used: "
                f"{problems[0]}; is this the key of that job?"
            )
            raise SnapshotError(msg)

    def _decode(self, data: bytes) -> Manifest:
        return decoded_manifest(data, self._key, lambda: self.directory)

    def _read(self, name: str, bytes_max: int) -> bytes:
        try:
            return self.files.read(name, bytes_max)
        except FileNotFoundError:
            raise
        except OSError as error:
            msg = (
                f"cannot read {name} in {self.files} ({error}), so it is not known whether "
                "it is damaged; make it readable and start again"
            )
            raise SnapshotError(msg) from error

    def _problem(self, ref: FileRef, epoch: int) -> str:
        _, problem = self._verified(ref)
        return f"epoch {epoch}: {problem}" if problem else ""

    def _verified(self, ref: FileRef) -> tuple[bytes, str]:
        """Return the bytes of a file, and what is wrong with them."""
        try:
            data = self._read(ref.name, ref.length + 1)
        except FileNotFoundError:
            return b"", f"{ref.name} is missing"
        if len(data) > ref.length:
            return b"", f"{ref.name} has more bytes than {ref.length}"
        if len(data) < ref.length:
            return b"", f"{ref.name} has {len(data)} bytes instead of {ref.length}"
        if sha256(data).hexdigest() != ref.sha256:
            return b"", f"{ref.name} was changed after it was written"
        return data, ""


class _Measured:
    """Passes chunks on and keeps their length and digest."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.length = 0
        self.digest = sha256()
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.length += len(chunk)
            self.digest.update(chunk)
            yield chunk


def _id(manifest: Manifest) -> ManifestId:
    return ManifestId(manifest.claim, manifest.epoch)
