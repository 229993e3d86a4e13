"""Remove what no snapshot needs: files of the store, and what sources keep themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.ids import Epoch
    from millstream.state.manifest import Manifest
    from millstream.state.store import SnapshotStore

__all__ = ["Offsets", "collect_garbage", "least_offsets"]

Offsets = dict[str, dict[str, int | None]]
"""Where to go on by source and split; None in what was read to its end."""


def collect_garbage(
    store: SnapshotStore,
    forget: Callable[[Offsets], None] | None,
    retain: int,
    *,
    oldest_open: Epoch,
) -> None:
    """Collect the garbage of the store, then let sources forget what is behind all."""
    store.collect_garbage(retain, oldest_open=oldest_open)
    if forget is None:
        return
    try:
        kept = [store.load(each) for each in store.manifests()]
    except SnapshotError:
        return  # nobody knows what a damaged one needs; it is gone before long
    forget(least_offsets(kept))


def least_offsets(manifests: list[Manifest]) -> Offsets:
    """Return the offsets that none of the snapshots is before."""
    first, *others = [manifest.offsets for manifest in manifests]
    least: Offsets = {
        source: {
            split: None if is_done else offset
            for split, (offset, is_done) in splits.items()
        }
        for source, splits in first.items()
    }
    for offsets in others:
        for source, splits in least.items():
            for split, offset in splits.items():
                reached, is_done = offsets.get(source, {}).get(split, (0, False))
                if not is_done:
                    splits[split] = reached if offset is None else min(offset, reached)
    return least
