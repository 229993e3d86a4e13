"""Complete jobs that are started again at another width: the same rows and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.examples import mostly_slow

import millstream as ms
from millstream.windows import count, session, tumbling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NUMBERS = list(range(20))
FRAME = pl.DataFrame({"k": [i % 3 for i in NUMBERS], "v": NUMBERS})
V = pl.col("v")


class Counted(ms.StatefulFunction[int, int, int]):
    """Tells at the end how many values a key had."""

    count = ms.ValueState(default=0)

    def on_record(self, key: int, value: int) -> None:
        del key, value
        self.count.update(self.count.get() + 1)

    def on_end(self, key: int) -> Iterator[int]:
        del key
        yield self.count.get()


def by_three(rows: Any, name: str = "key") -> Any:
    return rows.key_by(lambda i: i % 3, name=name)


def timed(flow: ms.Flow, name: str) -> Any:
    rows = flow.from_iterable(NUMBERS, name=name)
    return rows.event_time(lambda i: i, name=f"{name} at")


def frame(flow: ms.Flow, name: str = "frame") -> ms.Frame:
    return flow.from_frame(FRAME, name=name)


def cycled(_: ms.Flow, rows: Any) -> Any:
    return rows.cycle(
        100,
        lambda q, _: q.map(lambda _: 1, name="one"),
        update=lambda state, ones: state + sum(ones),
        max_rounds=3,
        name="op",
    )


def iterated(_: ms.Flow, rows: Any) -> Any:
    more = lambda q: q.map(lambda i: i + 1, name="more")  # noqa: E731 - a body
    return rows.iterate(more, max_rounds=3, name="op")


def improved(_: ms.Flow, rows: Any) -> Any:
    least = rows.key_by(lambda i: i % 5, name="key").delta_iterate(
        lambda old, new: new if old is None or new < old else None,
        lambda better: (
            better.unkey(name="pairs")
            .key_by(lambda pair: (pair[0] + 1) % 5, name="next")
            .map(lambda pair: pair[1], name="least")
        ),
        name="op",
    )
    return least.unkey(name="all")


def looped(_: ms.Flow, rows: Any) -> Any:
    return rows.loop(
        lambda q: (
            q.filter(lambda i: i > 10, name="large").map(lambda i: i - 1, name="less"),
            q.filter(lambda i: i <= 10, name="small"),
        ),
        name="op",
    )


def limited(_: ms.Flow, rows: Any) -> Any:
    return rows.limit(7, name="op").map(lambda _: 0, name="any")


def joined(flow: ms.Flow, rows: Any) -> Any:
    side = flow.from_iterable([1, 2, 7], name="side").key_by(lambda i: i, name="side.k")
    return by_three(rows).join(side, how="full", name="op").drop_key(name="pairs")


def joined_in_time(flow: ms.Flow, _: Any) -> Any:
    right = timed(flow, "right").key_by(lambda i: i % 2, name="right.k")
    pairs = by_three(timed(flow, "left")).interval_join(
        right, 0, 2, how="full", name="op"
    )
    return pairs.drop_key(name="pairs")


def zipped(flow: ms.Flow, rows: Any) -> Any:
    ones = flow.from_iterable(NUMBERS, name="others").map(lambda _: 1, name="one")
    return rows.map(lambda _: 0, name="any").zip(ones, name="op")


def cycled_frames(flow: ms.Flow, _: Any) -> Any:
    return frame(flow).cycle(
        5,
        lambda q, _: q.select("v", name="values"),
        update=lambda state, rows: state + rows["v"].sum(),
        max_rounds=2,
        name="op",
    )


def joined_frames(flow: ms.Flow, _: Any) -> Any:
    totals = frame(flow, "others").group_by("k").agg(total=V.sum(), name="totals")
    return frame(flow).join(totals, "k", name="op").to_rows(name="dicts")


def aggregated(expr: pl.Expr) -> Callable[[ms.Flow, Any], Any]:
    return lambda flow, _: (
        frame(flow).group_by("k").agg(expr, name="op").to_rows(name="dicts")
    )


VERBS: dict[str, Callable[[ms.Flow, Any], Any]] = {
    "cycle": cycled,
    "frames: sum": aggregated(V.sum()),
    "iterate": iterated,
    "delta_iterate": improved,
    "loop": looped,
    "count": lambda _, rows: rows.group_by(lambda i: i % 3, name="by").count(name="op"),
    "sort": lambda _, rows: rows.sort_by(lambda i: -i, name="op"),
    "top": lambda _, rows: rows.sort_by(lambda i: -i, name="op").limit(3, name="top"),
    "limit": limited,
    "unique": lambda _, rows: rows.map(lambda i: i % 4, name="mod").unique(name="op"),
    "process": lambda _, rows: (
        by_three(rows).process(Counted(), name="op").unkey(name="pairs")
    ),
    "windows": lambda flow, _: timed(flow, "in").window(tumbling(6)).sum(name="op"),
    "sessions": lambda flow, _: (
        by_three(timed(flow, "in"))
        .window(session(9))
        .count(name="op")
        .unkey(name="pairs")
    ),
    "count windows": lambda _, rows: (
        by_three(rows)
        .window(count(3, exact=False))
        .map_window(lambda _, values: len(values), name="op")
        .unkey(name="pairs")
    ),
    "join": joined,
    "interval_join": joined_in_time,
    "zip": zipped,
    "frames: distinct values": aggregated(V.n_unique()),
    "frames: cycle": cycled_frames,
    "frames: sort": lambda flow, _: (
        frame(flow).sort("v", name="op").to_rows(name="dicts")
    ),
    "frames: join": joined_frames,
}


@pytest.mark.parametrize(
    "widths", mostly_slow((2, 1), (1, 3), (3, 2)), ids=lambda w: f"{w[0]} to {w[1]}"
)
@pytest.mark.parametrize("verb", mostly_slow(*VERBS, fast=2))
@pytest.mark.filterwarnings("ignore::millstream.errors.UnboundedStateWarning")
def test_complete_job_is_complete_again_at_any_width(
    tmp_path: Path, verb: str, widths: tuple[int, int]
) -> None:
    """No branch gives its rows a second time, to a result or to files."""

    def run(workers: int) -> tuple[list[Any], dict[str, bytes], bool]:
        flow = ms.Flow("complete")
        rows = flow.from_parallel(lambda task, tasks: NUMBERS[task::tasks], name="rows")
        rows.for_each(id, name="each")
        made = VERBS[verb](flow, rows)
        result = made.collect(name="found")
        made.map(repr, name="text").write_text(tmp_path / "out", name="texts")
        job = flow.run(on="local", workers=workers, state=tmp_path / "state")
        files = (tmp_path / "out").iterdir()
        contents = {path.name: path.read_bytes() for path in files}
        return result.result(), contents, job.was_complete

    rows, files, _ = run(widths[0])
    again = run(widths[1])

    assert again == (rows, files, True)
    texts = b"".join(text for name, text in files.items() if name.startswith("part-"))
    assert sorted(texts.decode().splitlines()) == sorted(map(repr, rows))
    assert rows
