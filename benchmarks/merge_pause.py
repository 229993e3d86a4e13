"""How long a cut lasts while a compaction runs beside it, compared with one that is alone.

A table of many keys, as a worker has it, is cut again and again: 1 % of its keys are touched,
then captured, and the time of the capture is taken.  Meanwhile a thread merges a base and
its deltas, from files, without a pause.  The contestants are the cut alone, the cut beside
the engine's merge, and the cut beside *the former way*: everything merged in one dict with
the collector on, the switch interval a second while the cut lasts.

    python benchmarks/merge_pause.py [--quick]
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import measure
from cut_pause import percentile

from millstream.protocol.ids import Epoch
from millstream.state.base import ALL_SHARDS
from millstream.state.compaction import compacted
from millstream.state.files import LocalFiles
from millstream.state.layout import state_name
from millstream.state.manifest import FileRef
from millstream.state.row_codec import DELETED, decode_rows, encode_rows
from millstream.state.store import SnapshotStore
from millstream.state.table import MemoryTable
from millstream.state.turns import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

SHARDS = 1024
FULL_KEYS, QUICK_KEYS = 500_000, 20_000
FULL_CUTS, QUICK_CUTS = 200, 20
DELTAS = 8
WORK_S = 0.03
"""Between two cuts the task works so long, and the merge beside it."""
TURN_S = 0.001
"""The switch interval of a worker."""
RATIO_TARGET = 3


@dataclass(slots=True)
class History:
    """A table, and the files of its base and deltas."""

    store: SnapshotStore
    table: MemoryTable
    keys: list[str]
    refs: list[FileRef] = field(default_factory=list)
    epochs: Iterator[int] = field(default_factory=lambda: count(1))

    def touch(self) -> None:
        """Change a hundredth of all keys."""
        some = self.keys[len(self.refs) % 97 :: 100]
        self.table.touch(some).update(dict.fromkeys(some, len(self.refs)))

    def cut(self) -> Any:
        """Capture what was touched since the last cut."""
        epoch = next(self.epochs)
        capture = self.table.capture(Epoch(epoch), since=Epoch(epoch - 1))
        self.table.complete(Epoch(epoch))
        return capture

    def store_cut(self) -> None:
        """Write a cut to a file of its own."""
        epoch = 1 + len(self.refs)
        name = state_name(epoch, "bench", worker=1, stage=0, task=0, generation=1)
        segments = self.cut().segments("count", 0)
        length, digest = self.store.write_state(name, segments)
        is_base = epoch == 1
        self.refs.append(
            FileRef(name, length, digest, ("count",), is_base, epoch, epoch - 1, 0, 0)
        )


def main() -> None:
    """Measure the three contestants in turn."""
    options = measure.arguments(__doc__ or "").parse_args()
    keys = QUICK_KEYS if options.quick else FULL_KEYS
    cuts = QUICK_CUTS if options.quick else FULL_CUTS
    pauses_ms: dict[str, list[float]] = {}
    sys.setswitchinterval(TURN_S)
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        history = filled(directory, keys)
        merges: dict[str, tuple[Callable[[History], None] | None, Any]] = {
            "alone": (None, undisturbed),
            "beside a merge": (merge, undisturbed),
            "the former way": (former_merge, former_undisturbed),
        }

        def sample(name: str) -> float:
            taken = cut_beside(history, cuts, *merges[name])
            pauses_ms.setdefault(name, []).extend(taken)
            return percentile(taken, 99)

        samples = measure.interleaved(options.rounds, merges, sample)
    measure.finish(
        measure.Report(
            name="merge_pause",
            is_quick=options.quick,
            sizes={"keys": keys, "touched by cut": keys // 100},
            samples_unit="ms",
            samples={f"p99 {name}": taken for name, taken in samples.items()},
            figures=figures(pauses_ms),
        )
    )


def filled(directory: str, key_count: int) -> History:
    """Return a table with a base and some deltas of it in files."""
    store = SnapshotStore(LocalFiles(directory), bytes(32), job="bench", run="bench")
    keys = [f"key-{number}" for number in range(key_count)]
    history = History(store, MemoryTable(SHARDS), keys)
    history.table.touch(keys).update(dict.fromkeys(keys, 0))
    history.store_cut()
    for _ in range(DELTAS):
        history.touch()
        history.store_cut()
    return history


def cut_beside(
    history: History,
    cuts: int,
    merging: Callable[[History], None] | None,
    cutting: Callable[[], AbstractContextManager[None]],
) -> list[float]:
    """Return how many milliseconds every cut took while merges ran beside them."""
    is_over = threading.Event()
    before = history.refs[:]

    def repeat() -> None:
        while not is_over.is_set() and merging is not None:
            merging(history)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    found = []
    for _ in range(cuts):
        history.touch()
        busy_until = time.perf_counter() + WORK_S
        while time.perf_counter() < busy_until:
            sum(range(1000))
        began_ns = time.perf_counter_ns()
        with cutting():
            history.cut()
        found.append((time.perf_counter_ns() - began_ns) / 1e6)
    is_over.set()
    thread.join()
    measure.check("the merge", history.refs, before)
    return found


def merge(history: History) -> None:
    """Merge as the engine does; what it makes is encoded, and thrown away."""
    for _ in compacted(history.refs, history.store, ALL_SHARDS, SHARDS):
        pass


def former_merge(history: History) -> None:
    """Merge all rows in one dict."""
    rows: dict[Any, Any] = {}
    for ref in history.refs:
        for segment in history.store.read_segments(ref):
            rows.update(decode_rows(segment.payload))
    rows = {key: value for key, value in rows.items() if value is not DELETED}
    keys, values = list(rows), list(rows.values())
    for start in range(0, len(keys), 1 << 13):
        end = start + (1 << 13)
        encode_rows(keys[start:end], values[start:end])


@contextmanager
def former_undisturbed() -> Iterator[None]:
    """Let everybody who gets a turn meanwhile keep it for a second."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1.0)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


def figures(pauses_ms: dict[str, list[float]]) -> list[measure.Figure]:
    """Return the pauses, and how they compare with those of a cut that is alone."""
    found = [
        measure.Figure(f"{name}, {what}", value, "ms")
        for name, taken in pauses_ms.items()
        for what, value in (
            ("p50", percentile(taken, 50)),
            ("p99", percentile(taken, 99)),
            ("max", max(taken)),
        )
    ]
    alone = percentile(pauses_ms["alone"], 99)
    ratios = {n: percentile(taken, 99) / alone for n, taken in pauses_ms.items()}
    return [
        *found,
        measure.at_most(
            "p99 beside a merge, by p99 alone",
            ratios["beside a merge"],
            "x",
            RATIO_TARGET,
        ),
        measure.Figure(
            "p99 the former way, by p99 alone", ratios["the former way"], "x"
        ),
    ]


if __name__ == "__main__":
    main()
