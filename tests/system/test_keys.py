"""What is one key: on every launcher, at every width, from any snapshot."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pytest
from tests.support.launchers import WIDTHS
from tests.support.resizing import run_at_two_widths

import millstream as ms
from millstream.testing import Pause, ScriptedSource
from millstream.windows import count, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.launchers import Launcher

NANS: list[Any] = [
    float("nan"),
    float("nan"),
    Decimal("nan"),
    np.float64("nan"),
    math.nan,
]
FLOATS = [float(nan) for nan in NANS]


def known(key: Any) -> Any:
    """Return a key with a text for NaN, which equals itself."""
    if isinstance(key, tuple):
        return tuple(map(known, key))
    return "nan" if key != key else key  # noqa: PLR0124 - so is NaN


def keyed(flow: ms.Flow, name: str) -> ms.Stream[Any]:
    """Read every NaN twice, and some numbers."""
    return flow.from_iterable([*NANS, 1.5, *NANS, "a", None, 1.5], name=name).shuffle()


def numbers_with_nan(flow: ms.Flow, workers: int) -> None:
    """Use NaN as a key wherever there are keys."""
    rows = keyed(flow, "rows")
    rows.group_by(lambda x: x).count().map(known).collect(Counter)
    rows.group_by(lambda x: ("k", x)).fold(0, lambda n, _: n + 1).map(known).collect(
        Counter
    )
    rows.unique().map(known).collect(Counter)
    rows.group_by(lambda _: 0).unique().map(lambda pair: len(pair[1])).collect()
    running = rows.key_by(lambda x: x).map_with_state(0, lambda n, _: (n + 1, n + 1))
    running.unkey().map(known).collect(Counter)
    ones = rows.key_by(lambda x: x).map(lambda _: 1)
    ones.scan(lambda n, one: n + one).unkey().map(known).collect(Counter)
    by_two = rows.key_by(lambda x: x).window(count(2)).count().unkey()
    by_two.map(known).collect(Counter)
    table = flow.from_iterable([(float("nan"), "t")], name="table").key_by(
        lambda r: r[0]
    )
    values = table.map(lambda row: row[1])
    ones.join(values).unkey().map(known).collect(Counter)
    ones.join_table(values).unkey().map(known).collect(Counter)
    rows.join_broadcast(values, lambda x: x).map(known).collect(Counter)
    frame = flow.from_frame(pl.DataFrame({"x": [*FLOATS, 1.5, *FLOATS]}), name="frame")
    counts = frame.group_by("x").agg(n=pl.len()).to_rows()
    counts.map(lambda row: (known(row["x"]), row["n"])).collect(Counter)


def nan_oracle() -> list[Any]:
    """Say what plain Python would, if NaN were a text."""
    rows = [known(x) for x in [*NANS, 1.5, *NANS, "a", None, 1.5]]
    counts = Counter(rows)
    running = Counter((x, n) for x in counts for n in range(1, counts[x] + 1))
    windows = Counter((x, 2) for x in counts for _ in range(counts[x] // 2))
    return [
        Counter(counts.items()),
        Counter((("k", x), n) for x, n in counts.items()),
        Counter(counts.keys()),
        [len(counts)],
        running,
        running,
        windows,
        Counter({("nan", (1, "t")): 10}),
        Counter({("nan", (1, "t")): 10}),
        Counter({("nan", "t"): 10}),
        Counter([("nan", 2 * len(FLOATS)), (1.5, 1)]),
    ]


@pytest.mark.parametrize(("launcher", "workers"), WIDTHS, indirect=["launcher"])
def test_nan_is_one_key(launcher: Launcher, workers: int) -> None:
    """Whether rows were pickled on their way is nobody's business."""
    flow = ms.Flow("nan")
    numbers_with_nan(flow, workers)

    assert launcher.run(flow, workers) == nan_oracle()


@pytest.mark.parametrize(
    ("backend", "widths"), [("memory", (2, 3)), ("rocksdb", (2, 1))]
)
def test_state_of_nan_is_found_after_a_restore(
    backend: Literal["memory", "rocksdb"], widths: tuple[int, int], tmp_path: Path
) -> None:
    """It was pickled, and the next NaN that comes is another object."""
    rows = [(float("nan"), i) for i in range(30)]
    script = [each for row in rows for each in (row, Pause(), Pause())]
    flow = ms.Flow("restored")
    source = flow.read(ScriptedSource(script)).key_by(lambda row: (row[0], "k"))
    counted = source.map_with_state(0, lambda n, _: (n + 1, n + 1)).drop_key().collect()
    entries = source.process(Entries()).drop_key().collect()
    run_at_two_widths(flow, widths, tmp_path, state_backend=backend)

    assert sorted(counted.result()) == list(range(1, 31))
    assert max(entries.result()) == 1


class Entries(ms.StatefulFunction[Any, Any, int]):
    """Says how many entries a map has whose keys are all NaN."""

    seen = ms.MapState[float, int]()

    def on_record(self, key: Any, value: Any) -> list[int]:
        del key
        self.seen.update(value[0], (self.seen.get(float("nan")) or 0) + 1)
        return [len(self.seen)]


@dataclass(frozen=True)
class Mail:
    """Says itself which addresses are the same, and by what."""

    address: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mail) and self.address.lower() == other.address.lower()

    def __hash__(self) -> int:
        return hash(self.address.lower())

    def __millstream_key__(self) -> str:
        return self.address.lower()


class Loud(str):
    """Equals text in other letters, and does not say by what it is hashed."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


TINY: dict[str, Any] = {
    "buffer": ms.fixed(1),
    "source_batch_rows": 1,
    "combine_keys_max": 1,
}
NAMES = ["ann", "Ann", "ANN", "bob", "Bob", "cyd", "CYD", "dan", "DAN", "eve", "Eve"]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_equal_keys_of_a_class_are_one_key(workers: int) -> None:
    """Though nothing combines them before they move."""
    flow = ms.Flow("mails")
    mails = flow.from_iterable([Mail(name) for name in NAMES * 3]).shuffle()
    counts = mails.group_by(lambda mail: mail).count().collect()
    flow.run(on="local", workers=workers, **TINY)

    assert sorted(n for _, n in counts.result()) == [6, 6, 6, 6, 9]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("place", [0, 2])
def test_key_that_is_refused_is_named_with_its_record(workers: int, place: int) -> None:
    """Wherever it is in its batch, on one worker as on many, and before a combiner."""
    rows = [10, 20, 30]

    def key(row: int) -> Any:
        return [row] if row == rows[place] else row

    def loud(row: int) -> Any:
        return Loud("a") if row == rows[place] else row

    def nameless(row: int) -> Any:
        return object() if row == rows[place] else row

    verbs: list[tuple[Any, str]] = [
        (lambda s: s.group_by(key).count(), "a list"),
        (lambda s: s.group_by(key).sum(), "a list"),
        (lambda s: s.group_by(key).fold(0, lambda n, _: n), "a list"),
        (lambda s: s.key_by(key).map(abs), "a list"),
        (lambda s: s.key_by(loud).map(abs), "a Loud"),
        (lambda s: s.group_by(loud).sum(), "a Loud"),
        (lambda s: s.key_by(nameless).map(abs), "an object"),
    ]
    for make, name in verbs:
        flow = ms.Flow("refused")
        make(flow.from_iterable(rows)).collect()
        with pytest.raises(ms.OperatorError, match=f"{name} cannot be a key") as raised:
            flow.run(on="local", workers=workers)
        text = str(raised.value)
        assert text.startswith(("group_by at", "key_by at"))
        assert str(rows[place]) in text.rpartition(", value ")[2], text


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("key", "words"),
    [(object(), r"an object .*<object object"), (Loud("a"), r"a Loud .*'a'")],
    ids=["object", "Loud"],
)
def test_key_that_was_counted_is_refused_by_itself(
    key: Any, words: str, workers: int
) -> None:
    """Its records are one number by then, so that none of them is blamed."""
    flow = ms.Flow("refused")
    rows = flow.from_iterable([10, 20, 30])
    rows.group_by(lambda row: key if row == 10 else row).count().collect()

    with pytest.raises(ms.OperatorError, match=f"^group_by at .* {words}.*, 1\\)\\n"):
        flow.run(on="local", workers=workers)


def test_aggregate_is_known_by_what_it_is_and_not_by_its_name() -> None:
    """One of the user's own may be called count or sum as well."""
    flow = ms.Flow("named")
    values = [(0, 2), (0, 3), (1, 1), (1, 5)]
    rows = flow.from_iterable(values).event_time(lambda row: row[1], out_of_order=10)
    product = {
        name: ms.Aggregate(
            name, lambda r: r[1], lambda a, r: a * r[1], lambda a, b: a * b
        )
        for name in ("count", "sum")
    }
    found = []
    for aggregate in product.values():
        groups = rows.drop_time().group_by(lambda row: row[0])
        found.append(groups.aggregate(aggregate).collect())
        by_time = rows.key_by(lambda row: row[0]).window(tumbling(100))
        found.append(by_time.aggregate(aggregate).unkey().collect())
        by_count = rows.drop_time().key_by(lambda row: row[0]).window(count(2))
        found.append(by_count.aggregate(aggregate).unkey().collect())
    flow.run(on="local", workers=2)

    assert [sorted(each.result()) for each in found] == [[(0, 6), (1, 5)]] * 6


class Seen(ms.StatefulFunction[str, str, list[str]]):
    """Appends to what it gets, as one does."""

    pages = ms.ValueState[list[str]](default=[])

    def on_record(self, key: str, value: str) -> list[list[str]]:
        del key
        seen = self.pages.get()
        seen.append(value)
        self.pages.update(seen)
        return [list(seen)]


def added(pages: list[str], page: str) -> list[str]:
    """Append to what it gets, and return the same list."""
    pages.append(page)
    return pages


def test_default_of_a_state_belongs_to_no_key() -> None:
    """What one key adds to it, another one does not see."""
    flow = ms.Flow("defaults")
    rows = flow.from_iterable([("ann", "p1"), ("bob", "p2"), ("ann", "p3")])
    pages = rows.key_by(lambda row: row[0]).map(lambda row: row[1])
    nothing: list[str] = []
    found = [
        pages.process(Seen()).collect(),
        pages.map_with_state(
            nothing, lambda seen, page: (added(seen, page), list(seen))
        ).collect(),
    ]
    grouped = rows.group_by(lambda row: row[0], value=lambda row: row[1])
    lists = grouped.fold(nothing, added).collect()
    flow.run(on="local", workers=2)

    expected = [("ann", ["p1"]), ("ann", ["p1", "p3"]), ("bob", ["p2"])]
    assert [sorted(each.result()) for each in found] == [expected] * 2
    assert sorted(lists.result()) == [("ann", ["p1", "p3"]), ("bob", ["p2"])]
    assert nothing == []


def test_running_aggregate_is_not_changed_after_it_was_sent() -> None:
    """Nor a list inside a tuple, which itself does not change."""

    def add(state: tuple[list[int], int], value: int) -> tuple[list[int], int]:
        state[0].append(value)
        return state

    flow = ms.Flow("running")
    rows = flow.from_iterable([1, 2, 3]).key_by(lambda _: 0)
    found = rows.scan(add, initial=([], 0)).drop_key().collect()
    flow.run(on="local")

    assert found.result() == [([1], 0), ([1, 2], 0), ([1, 2, 3], 0)]
