"""Whether the snapshot that a job would go on from fits its flow.

State is found by the names of operators, and offsets by the names of sources.  What stands
under a name may have changed since; then the state is carried over where that is right, and
said, and otherwise refused with what was there, what is there, and the ways out.

Nothing here reads state.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from millstream.credentials import shown
from millstream.errors import SnapshotError
from millstream.plan.fingerprint import fingerprints
from millstream.plan.grouping import Columns
from millstream.plan.nodes import Read
from millstream.plan.state_fields import FOR_EVER, Rule
from millstream.state.keyhash import KEY_HASH_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from millstream.config import Config
    from millstream.connectors.base import Split
    from millstream.plan.fingerprint import Fingerprint
    from millstream.plan.logical import Node
    from millstream.plan.stages import StagePlan
    from millstream.plan.state_fields import Field
    from millstream.state.manifest import Fingerprints, Manifest

    Said = Mapping[str, tuple[str, ...]]

__all__ = [
    "asked_of_sources",
    "changed_input",
    "check_fit",
    "check_flow",
    "check_outputs",
    "plan_hash",
    "stored_fingerprints",
]

_HIDDEN = ("does", "family", "reads")
_LASTING = (Rule.FREE, Rule.LONGER)
"""Rules of fields that do not change what is stored."""

_WAYS_OUT = (
    "give the changed operator another name= and pass drop_state=True to begin it without "
    "state, begin with a new state directory, or go on with the old program"
)


def _nodes(stages: StagePlan) -> list[Node]:
    return [node for stage in stages.stages for node in stage.nodes]


def stored_fingerprints(stages: StagePlan) -> Fingerprints:
    """Return what stands under the names of the flow's operators, for its manifests."""
    found = fingerprints(_nodes(stages))
    return {name: fingerprint.plain() for name, fingerprint in found.items()}


def asked_of_sources(stages: StagePlan) -> dict[str, str]:
    """Return what the sources of a flow were asked to read, by operator."""
    reads = [(n.name, n.spec) for n in _nodes(stages) if isinstance(n.spec, Read)]
    return {name: spec.source.identity() for name, spec in reads}


def plan_hash(stages: StagePlan) -> str:
    """Return a digest of what the flow does, as far as its state depends on it."""
    shape = [
        (s.id, s.width, [(n.name, type(n.spec).__name__) for n in s.nodes])
        for s in stages.stages
    ]
    edges = [(e.source, e.target, e.port, str(e.grouping)) for e in stages.edges]
    if any(isinstance(edge.grouping, Columns) for edge in stages.edges):
        from millstream.state.frame_codec import hash_fingerprint  # noqa: PLC0415

        edges.append((-1, -1, -1, f"hash {hash_fingerprint()}"))
    kept = [
        (name, [(f.name, f.values) for f in found.fields if f.rule not in _LASTING])
        for name, found in sorted(fingerprints(_nodes(stages)).items())
    ]
    return hashlib.sha256(repr((shape, edges, kept)).encode()).hexdigest()


def check_flow(manifest: Manifest | None, flow: str, place: str) -> None:
    """Refuse the state directory of another flow."""
    place = shown(place)
    if manifest is not None and manifest.flow != flow:
        msg = (
            f"the state directory {place} belongs to the flow {manifest.flow!r} (job "
            f"{manifest.job}, epoch {manifest.epoch}), and this flow is {flow!r}; give "
            f"each flow a directory of its own, or pass resume_from={place!r} with a new "
            "directory as state= to begin with a copy of what is there"
        )
        raise SnapshotError(msg)


def check_fit(
    manifest: Manifest, stages: StagePlan, config: Config, *, is_dropping: bool = False
) -> list[str]:
    """Refuse a snapshot whose state would be lost or land in the wrong place.

    Returned is what has changed and is carried over, a sentence each.

    Parameters
    ----------
    is_dropping
        Whether the user wants to go on without what no operator has a use for.
    """
    _check_sources(manifest, asked_of_sources(stages))
    found = fingerprints(_nodes(stages))
    _check_default_names(manifest, found)
    if not is_dropping:
        _check_names(manifest, stages, found.keys())
    if manifest.shard_count != config.shard_count:
        msg = (
            f"the snapshot has {manifest.shard_count} shards and the setting "
            f"'shard_count' says {config.shard_count}; set it to {manifest.shard_count}"
        )
        raise SnapshotError(msg)
    if manifest.key_hash_version != KEY_HASH_VERSION:
        msg = (
            f"the snapshot was partitioned with key hash version "
            f"{manifest.key_hash_version}, this Millstream has version {KEY_HASH_VERSION}; resume with the version "
            "that wrote it"
        )
        raise SnapshotError(msg)
    both = found.keys() & manifest.fingerprints.keys()
    if not manifest.results:
        both = {name for name in both if not found[name].is_for_driver}
    return [note for name in sorted(both) for note in _compared(name, manifest, found)]


def check_outputs(manifest: Manifest, stages: StagePlan) -> None:
    """Refuse a flow without a sink that an epoch may still have to be committed to."""
    names = {node.name for node in _nodes(stages)}
    lost = sorted({name for name, _, _ in manifest.transactions} - names)
    if lost:
        msg = (
            f"the snapshot of epoch {manifest.epoch} has output of {_listed(lost)} that "
            "may not be visible yet, and the flow has no sink of that name; give the "
            "sink its old name with name=, or pass drop_state=True to lose that output"
        )
        raise SnapshotError(msg)


def changed_input(
    stages: StagePlan, before: Mapping[str, tuple[Split, ...]]
) -> list[str]:
    """Return what has come to the sources since they were cut, and is not read."""
    return [
        f"{node.name!r}: {sentence}"
        for node in _nodes(stages)
        if isinstance(node.spec, Read) and node.name in before
        for sentence in node.spec.source.changes(before[node.name])
    ]


# Names


def _check_names(manifest: Manifest, stages: StagePlan, context: Iterable[str]) -> None:
    names = {node.name for node in _nodes(stages)}
    listed = {name for ref in manifest.files for name in ref.operators}
    lost = sorted((listed | manifest.offsets.keys()) - names.union(context))
    if lost:
        msg = (
            f"the snapshot of epoch {manifest.epoch} has state of {_listed(lost)}, and "
            f"the flow has no operator of that name (it has {_listed(sorted(names))}); "
            "give the operator its old name with name=, or pass drop_state=True to begin "
            "without that state"
        )
        raise SnapshotError(msg)


def _check_default_names(manifest: Manifest, found: Mapping[str, Fingerprint]) -> None:
    """Refuse names that were given by counting, where the count has changed.

    Of two unnamed operators of a kind nobody can tell which one was there before.
    """
    named = {name for name, fingerprint in found.items() if not fingerprint.family}
    before = _families(
        (name, said["family"][0])
        for name, said in manifest.fingerprints.items()
        if name not in named
    )
    now = _families((name, fingerprint.family) for name, fingerprint in found.items())
    for family, old in before.items():
        new = now.get(family, set())
        if new and new != old:
            msg = (
                f"the snapshot of epoch {manifest.epoch} has {len(old)} unnamed "
                f"{family!r} and the flow has {len(new)}, so it cannot be told whose "
                f"state is that of {_listed(sorted(old))}; name them: name= and "
                "the old name for what was there before, other names for the rest"
            )
            raise SnapshotError(msg)
        if len(old) > 1:
            _check_places(manifest, found, old & new)


def _check_places(
    manifest: Manifest, found: Mapping[str, Fingerprint], names: set[str]
) -> None:
    """Refuse unnamed operators of a kind that have changed places."""
    for name in sorted(names):
        before, now = manifest.fingerprints[name]["reads"], found[name].reads
        if before != now:
            msg = (
                f"the unnamed {name!r} read {_listed(before)} when the snapshot of epoch "
                f"{manifest.epoch} was taken, and reads {_listed(now)} in this flow, which "
                "has several of its kind, so it cannot be told whether it is the same; "
                f"name it: name={name!r} if it is, another name if not"
            )
            raise SnapshotError(msg)


def _families(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    families: dict[str, set[str]] = {}
    for name, family in pairs:
        if family:
            families.setdefault(family, set()).add(name)
    return families


def _check_sources(manifest: Manifest, asked: Mapping[str, str]) -> None:
    """Refuse offsets of another input."""
    for name, now in asked.items():
        before = manifest.sources.get(name, "")
        if before and now and before != now:
            msg = (
                f"the snapshot of epoch {manifest.epoch} is that of a flow whose source "
                f"{name!r} read {before}, and in this flow it reads {now}, of which "
                "nothing would be read that lies before the old position; begin with a "
                "new state directory, or, to keep the state of the other operators, give "
                "the source another name= and pass drop_state=True"
            )
            raise SnapshotError(msg)


# Fingerprints


def _compared(
    name: str, manifest: Manifest, found: Mapping[str, Fingerprint]
) -> Iterator[str]:
    """Yield how the state of an operator is carried over; refuse what cannot be."""
    before, now = manifest.fingerprints[name], found[name]
    is_other = before["does"] != (now.does,)
    own = {field.name: field for field in now.fields}
    gone = before.keys() - own.keys() - set(_HIDDEN)
    wrong = [] if is_other else sorted(gone)
    notes = []
    for field in () if is_other else now.fields:
        old = before.get(field.name)
        if old == field.values or (old is None and field.rule is Rule.LONGER):
            continue
        note = None if old is None else _carried(field, old)
        if note is None:
            wrong.append(field.name)
        elif old is not None and name in manifest.finished_operators:
            _check_given(name, manifest, field, old)
        else:
            notes.append(f"{name!r} goes on with its state: {note}")
    if is_other or wrong:
        differ = "" if is_other else f", which differ in {', '.join(wrong)}"
        msg = (
            f"the state of {name!r} in epoch {manifest.epoch} is that of "
            f"{_shown(before, before['does'][0], wrong)}, and in this flow {name!r} is "
            f"{_shown(now.plain(), now.does, wrong)}{differ}; {_WAYS_OUT}"
        )
        raise SnapshotError(msg)
    yield from notes


def _check_given(
    name: str, manifest: Manifest, field: Field, old: tuple[str, ...]
) -> None:
    """Refuse another result of an operator that has given its result already."""
    if field.rule in {Rule.FEWER, Rule.MORE} and set(old) != set(field.values):
        msg = (
            f"{name!r} had ended when the snapshot of epoch {manifest.epoch} was taken, "
            f"with the results of {', '.join(old)}; in this flow it has "
            f"{', '.join(field.values)}, which would not be computed again; go on with the "
            "old program, or begin with a new state directory"
        )
        raise SnapshotError(msg)


def _carried(field: Field, old: tuple[str, ...]) -> str | None:
    """Return in words how an old value becomes the new one; None if it cannot."""
    new = field.values
    then, now = set(old), set(new)
    changed = f"{field.name} was {', '.join(old)} and is {', '.join(new)}"
    match field.rule:
        case Rule.ANY_ORDER | Rule.FEWER | Rule.MORE if sorted(old) == sorted(new):
            return f"{field.name} the same in another order"
        case Rule.FEWER if now < then:
            return f"{field.name} no longer {', '.join(sorted(then - now))}"
        case Rule.MORE if now > then:
            return (
                f"{field.name} also {', '.join(sorted(now - then))}, which begins empty"
            )
        case Rule.LONGER if _milliseconds(new) >= _milliseconds(old):
            return f"{changed}, for what comes from now on"
        case Rule.FREE:
            return f"{changed}, from now on"
    return None


def _milliseconds(values: tuple[str, ...]) -> float:
    return float("inf") if values == (FOR_EVER,) else int(values[0].split()[0])


def _shown(said: Said, does: str, wrong: Iterable[str]) -> str:
    """Return a fingerprint as a message shows it, what differs first."""
    names = [name for name in said if name not in _HIDDEN]
    names.sort(key=lambda name: name not in set(wrong))
    fields = [f"{name}: {', '.join(said[name]) or 'none'}" for name in names]
    return f"{does!r} ({'; '.join(fields)})" if fields else repr(does)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
