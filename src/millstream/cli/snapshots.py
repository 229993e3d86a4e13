"""What ``millstream snapshots`` says about a state directory; it changes nothing there.

Reading needs the key that lies in the directory or in ``MILLSTREAM_STATE_KEY``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError, UsageError
from millstream.observe.printable import printable
from millstream.state.files import files_at
from millstream.state.key import KEY_NAME, KEY_VARIABLE, stored_key
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.state.layout import ManifestId
    from millstream.state.manifest import Manifest

__all__ = ["described", "listed", "opened", "verified"]

_HEADINGS = ("epoch", "claim", "files", "size", "took", "created")
_UNITS = ("B", "KiB", "MiB", "GiB")
_STEP = 1024


def opened(place: str) -> SnapshotStore:
    """Return the store at a path or URL that has at least one manifest."""
    files = files_at(place)
    if not files.names("manifests"):
        msg = f"there are no snapshots in {files}; name the state directory of a job"
        raise UsageError(msg)
    key = stored_key(files)
    if key is None:
        msg = (
            f"{files} has no file `{KEY_NAME}`; set {KEY_VARIABLE} to the key that the "
            "job runs with"
        )
        raise UsageError(msg)
    return SnapshotStore(files, key)


def listed(store: SnapshotStore) -> Iterator[str]:
    """Yield a line for each epoch, newest first; the files are not looked at."""
    rows: list[Sequence[str]] = [_HEADINGS]
    notes = []
    for each in store.manifests():
        try:
            rows.append(_row(store.load(each)))
        except SnapshotError as error:
            notes.append(printable(str(error)))
    yield from _table(rows)
    yield from notes
    for each in store.forks():
        yield (
            f"epoch {each.epoch} of claim {each.claim} is not used: its driver had "
            "been superseded"
        )


def described(store: SnapshotStore, epoch: int | None) -> Iterator[str]:
    """Yield what an epoch holds; the newest one that can be used by default."""
    manifest = _newest(store) if epoch is None else store.load(_chosen(store, epoch))
    splits = [split for each in manifest.offsets.values() for split in each.values()]
    done = sum(is_done for _, is_done in splits)
    yield from _table(
        [
            ("epoch", f"{manifest.epoch}, after {manifest.parent_epoch}"),
            ("job", manifest.job),
            ("flow", manifest.flow),
            *(("source", f"{name}: {it}") for name, it in manifest.sources.items()),
            ("plan", manifest.plan_hash),
            ("created", f"{manifest.created} in {manifest.duration_ms} ms"),
            ("driver", f"claim {manifest.claim}, run {manifest.run}"),
            ("generation", str(manifest.generation)),
            ("tasks", f"{manifest.task_count}, {len(manifest.ended)} ended"),
            ("shards", f"{manifest.shard_count}, key hash {manifest.key_hash_version}"),
            ("splits", f"{len(splits)}, {done} read to the end"),
            ("transactions", str(len(manifest.transactions))),
            ("results", _size(sum(ref.length for ref in manifest.results))),
        ]
    )
    yield ""
    yield from _table([("operator", "files", "bytes"), *_by_operator(store, manifest)])


def verified(store: SnapshotStore) -> list[str]:
    """Return all that is wrong, one sentence each."""
    found = (each for name in store.manifests() for each in store.inspect(name)[1])
    return [printable(problem) for problem in found]


def _newest(store: SnapshotStore) -> Manifest:
    manifest = store.newest()
    if manifest is None:
        msg = f"the snapshots in {store.files} are all of drivers that were superseded"
        raise SnapshotError(msg)
    return manifest


def _chosen(store: SnapshotStore, epoch: int) -> ManifestId:
    found = store.manifests()
    for each in found:
        if each.epoch == epoch:
            return each
    known = ", ".join(str(each.epoch) for each in found)
    msg = f"{store.files} has no epoch {epoch}; it has {known or 'none'}"
    raise UsageError(msg)


def _by_operator(
    store: SnapshotStore, manifest: Manifest
) -> list[tuple[str, str, str]]:
    """Return files and bytes of each operator; one file may hold several operators."""
    files: Counter[str] = Counter(dict.fromkeys(manifest.operators, 0))
    sizes: Counter[str] = Counter()
    for ref in manifest.files:
        for segment in store.read_segments(ref):
            sizes[segment.operator] += len(segment.payload)
        files.update(ref.operators)
    return [(name, str(files[name]), str(sizes[name])) for name in sorted(files)]


def _row(manifest: Manifest) -> tuple[str, ...]:
    refs = manifest.references()
    return (
        str(manifest.epoch),
        str(manifest.claim),
        str(len(refs)),
        _size(sum(ref.length for ref in refs)),
        f"{manifest.duration_ms} ms",
        manifest.created,
    )


def _size(count: float) -> str:
    """Return a number of bytes as people say it.

    >>> _size(1536)
    '1.5 KiB'
    """
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count /= _STEP
        unit += 1
    return f"{count:.4g} {_UNITS[unit]}"


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    lines = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()
