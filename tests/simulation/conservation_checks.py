"""What a snapshot of the token ring and of the bank must hold, added up at every epoch.

What was read of the source is in the state or under way in the loop, or has left.  The
files are read as a recovery would read them; `millstream.simulation.snapshot_checker` counts rows
of channels, and knows nothing of amounts.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.simulation.loop_flows import COUNT, balances, spread

from millstream.runtime.free_head import InFlight
from millstream.simulation.snapshot_checker import SnapshotChecker
from millstream.state.base import ALL_SHARDS
from millstream.state.manifest import decoded_manifest
from millstream.state.segments import decoded_segments
from millstream.state.table import MemoryTable

if TYPE_CHECKING:
    import pytest

    from millstream.state.base import Segment
    from millstream.state.manifest import Manifest

__all__ = ["audit"]

SOURCE, ACCOUNTS, LOOP = "from_parallel", "process", "loop.in-flight"


def audit(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let every epoch be added up, where nothing has ended but sources; count them."""
    published = SnapshotChecker.published
    seen: Counter[str] = Counter()

    def adding_up(checker: Any, name: str, data: bytes) -> None:
        published(checker, name, data)
        if not name.startswith("manifests/"):
            return
        manifest = decoded_manifest(data, checker._key, lambda: data[14:30])
        is_early = all(stage == 0 for stage, _ in manifest.ended)
        if is_early and not checker._disk.damaged:
            segments = _segments(checker, manifest)
            seen["epochs"] += 1
            seen["under way"] += bool(_under_way(segments))
            checker._problems.extend(_differences(manifest, segments))

    monkeypatch.setattr(SnapshotChecker, "published", adding_up)
    return seen


def _segments(checker: Any, manifest: Manifest) -> list[Segment]:
    files = checker._disk.files
    return [s for ref in manifest.files for s in decoded_segments(files[ref.name])]


def _differences(manifest: Manifest, segments: list[Segment]) -> list[str]:
    read, under_way = _read(manifest), _under_way(segments)
    table = MemoryTable(manifest.shard_count)
    accounts = [segment for segment in segments if segment.operator == ACCOUNTS]
    table.restore(accounts, (0, manifest.shard_count))
    if not any(len(row) == 3 for row in under_way) and not accounts:
        return _strange_tokens(read, [token for token, _ in under_way])
    kept = sum(entry["balance"] for _, entry in table.items())
    moving = sum(amount for _, amount, _ in under_way)
    paid = sum(number + 1 for number in read)
    if not moving and len(read) == COUNT:
        # At the very end accounts say what they have, one after the other, and are gone.
        known = dict(table.items())
        kept += sum(money for key, money in balances().items() if key not in known)
    if kept + moving == paid:
        return []
    return [
        f"epoch {manifest.epoch}: {kept} in accounts and {moving} under way, of {paid}"
    ]


def _strange_tokens(read: list[int], tokens: list[int]) -> list[str]:
    """Tokens leave the ring one by one, so those that are there are read, and once."""
    strange = Counter(tokens) - Counter(read)
    return [f"tokens {dict(strange)} are under way too often"] if strange else []


def _read(manifest: Manifest) -> list[int]:
    """Return the numbers that the source had given."""
    read: list[int] = []
    for split, (offset, is_over) in manifest.offsets.get(SOURCE, {}).items():
        _, rank, _, size = split.split()
        rows = spread(int(rank), int(size))
        read += rows if is_over else rows[:offset]
    return read


def _under_way(segments: list[Segment]) -> list[Any]:
    """Return the rows that had been logged on their way back."""
    log = InFlight()
    log.restore([s for s in segments if s.operator == LOOP], ALL_SHARDS)
    return [row for rows, _ in log.restored for row in rows]
