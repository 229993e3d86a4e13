"""The names of files in a state directory, and which manifests are the job's history.

::

    claims/000002                         the second start of a driver
    claims/000002-00000007-000001         it went on from epoch 7 of claim 1
    epochs/00000008/<run>-<worker>-<stage>-<task>-<generation>.state
    manifests/00000008-000002.manifest    epoch 8, written under claim 2
    newest/00000008-000002                epoch 8 of claim 2 was complete

Two drivers may work on one directory for a while: one that was thought dead, and its
successor.  The older one may still publish a manifest, after the successor has looked.
So epochs alone do not order manifests: a claim comes first, and of older claims only
what its driver went on from counts.  Everything else is a *fork*, which nobody may
restore, because the sinks have seen the other history.

Names are all that is looked at here; nothing reads a file, so somebody else must say which
names count.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "NOTHING",
    "Listing",
    "ManifestId",
    "StateFile",
    "claim_name",
    "file_name",
    "history",
    "origin_name",
    "parsed_listing",
    "parsed_newest",
    "parsed_state_file",
    "state_name",
]

_CLAIM = re.compile(r"claims/(\d{6,15})")
_ORIGIN = re.compile(r"claims/(\d{6,15})-(\d{8,15})-(\d{6,15})")
_MANIFEST = re.compile(r"manifests/(\d{8,15})-(\d{6,15})\.manifest")
_NEWEST = re.compile(r"newest/(\d{8,15})-(\d{6,15})")
_STATE_FILE = re.compile(r"epochs/(\d{8,})/([A-Za-z0-9_]+)-[^/]+")
_RUN = re.compile(r"[A-Za-z0-9_]+")


class ManifestId(NamedTuple):
    """Which manifest; they sort from old to new within one history."""

    claim: int
    epoch: int

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"manifests/{self.epoch:08d}-{self.claim:06d}.manifest"

    @property
    def newest_name(self) -> str:
        """Name of the note that there was such a manifest."""
        return f"newest/{self.epoch:08d}-{self.claim:06d}"


NOTHING = ManifestId(0, 0)
"""Where the first driver of a job goes on from."""


class StateFile(NamedTuple):
    """What the name of a state file says."""

    epoch: int
    run: str


class Listing(NamedTuple):
    """What the names in a directory say.

    Attributes
    ----------
    claims
        By number, the names that say that there was such a claim.
    origins
        By name: which claim went on from which manifest.
    """

    claims: dict[int, list[str]]
    origins: dict[str, tuple[int, ManifestId]]
    manifests: frozenset[ManifestId]

    @property
    def claim_max(self) -> int:
        """The highest claim that any name speaks of, whoever made it."""
        claims = (*self.claims, *(each.claim for each in self.manifests))
        return max(claims, default=0)


def claim_name(claim: int) -> str:
    """Return the name of the file that stands for a claim."""
    return f"claims/{claim:06d}"


def origin_name(claim: int, origin: ManifestId) -> str:
    """Return the name of the file that says where a claim's driver went on from."""
    return f"claims/{claim:06d}-{origin.epoch:08d}-{origin.claim:06d}"


def file_name(epoch: int, run: str, rest: str) -> str:
    """Return the name of a file that belongs to an epoch of a run.

    Parameters
    ----------
    run
        Letters and digits that no other start of a driver has.
    rest
        What no other file of that epoch and run has.

    Examples
    --------
    >>> file_name(7, "f3a9", "results-4.state")
    'epochs/00000007/f3a9-results-4.state'
    """
    if not _RUN.fullmatch(run):
        msg = f"a run is named by letters and digits, got {run!r}"
        raise LocalProtocolError(msg)
    return f"epochs/{epoch:08d}/{run}-{rest}"


def state_name(
    epoch: int,
    run: str,
    *,
    worker: int,
    stage: int,
    task: int,
    generation: int,
    suffix: str = "state",
) -> str:
    """Return a name that no other attempt can use.

    Parameters
    ----------
    suffix
        Another one for each further file of the same attempt.

    Examples
    --------
    >>> state_name(7, "f3a9", worker=2, stage=1, task=0, generation=4)
    'epochs/00000007/f3a9-2-1-0-4.state'
    """
    return file_name(epoch, run, f"{worker}-{stage}-{task}-{generation}.{suffix}")


def parsed_state_file(name: str) -> StateFile | None:
    """Return what the name of a state file says, or None if it is none."""
    match = _STATE_FILE.fullmatch(name)
    return StateFile(int(match[1]), match[2]) if match else None


def parsed_newest(name: str) -> ManifestId | None:
    """Return which manifest a note speaks of, or None if it is no such note."""
    match = _NEWEST.fullmatch(name)
    return ManifestId(int(match[2]), int(match[1])) if match else None


def parsed_listing(claims: Iterable[str], manifests: Iterable[str]) -> Listing:
    """Return what the names below ``claims`` and ``manifests`` say."""
    taken: dict[int, list[str]] = {}
    origins: dict[str, tuple[int, ManifestId]] = {}
    for name in claims:
        match = _ORIGIN.fullmatch(name)
        if match:
            origins[name] = int(match[1]), ManifestId(int(match[3]), int(match[2]))
        match = match or _CLAIM.fullmatch(name)
        if match:
            taken.setdefault(int(match[1]), []).append(name)
    found = frozenset(
        ManifestId(int(match[2]), int(match[1]))
        for name in manifests
        if (match := _MANIFEST.fullmatch(name))
    )
    return Listing(taken, origins, found)


def history(
    manifests: Iterable[ManifestId], origins: Mapping[int, ManifestId]
) -> list[ManifestId]:
    """Return the manifests that led to the present, newest first.

    Examples
    --------
    The driver of claim 2 went on from epoch 7; then that of claim 1 wrote epoch 8.

    >>> seven, fork = ManifestId(1, 7), ManifestId(1, 8)
    >>> history([seven, fork], {1: NOTHING, 2: seven}) == [seven]
    True
    """
    found = set(manifests)
    led: list[ManifestId] = []
    limit: ManifestId | None = None
    for claim in sorted({each.claim for each in found} | set(origins), reverse=True):
        if limit is not None and claim > limit.claim:
            continue
        of_claim = sorted((each for each in found if each.claim == claim), reverse=True)
        led += [each for each in of_claim if limit is None or each.epoch <= limit.epoch]
        if claim in origins:
            limit = origins[claim]
        elif limit is not None:
            limit = ManifestId(claim - 1, limit.epoch)
    return led
