"""The regular join: every left row with every right row of its key.

Rows stay until the end, or until they have waited for `ttl_ms`; a row that has not met
another by then comes out alone, where that is asked for.  What only has to be known is
whether a key has right rows (semi and anti), only that is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.base import TickingOperator
from millstream.operators.due import DueKeys, chunks
from millstream.operators.joins.base import CHUNK_KEYS, KeyedJoinOperator, later
from millstream.plan.joins import LEFT, RIGHT, How, Join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.table import Table

__all__ = ["HashJoinOperator"]

_VALUE, _EXPIRES_MS, _IS_MATCHED = 0, 1, 2


class HashJoinOperator(KeyedJoinOperator, TickingOperator):
    """Rows by side in the order of their coming, each with when it goes.

    Parameters
    ----------
    clock
        Says when rows expire.
    """

    def __init__(self, nodes: tuple[Node, ...], table: Table, clock: Clock) -> None:
        super().__init__(nodes, table)
        spec = nodes[0].spec
        assert isinstance(spec, Join)
        self._how = spec.how
        self._ttl_ms = spec.ttl_ms
        self._clock = clock
        self._due = DueKeys()
        self._is_indexed = spec.ttl_ms is None
        self._is_timed = nodes[0].takes_times

    @property
    def tick_at_ms(self) -> int | None:  # type: ignore[override]  # follows from the rows
        """When the next row expires."""
        self._index()
        return self._due.first

    def process(self, rows: Rows, port: int) -> Rows:
        result: Rows = []
        expires_ms = None
        if self._ttl_ms is not None:
            now_ms = self._clock.wall_ms()
            expires_ms = now_ms + self._ttl_ms
            for expired in self.tick(now_ms):
                result += expired
        entries = self.touched(rows)
        meet = self._meet if self._how.makes_pairs else self._meet_once
        for key, value in rows:
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = ([], [])
            meet(key, entry, port, [value, expires_ms, False], result)
            if expires_ms is not None:
                self._due.add(key, expires_ms)
        return result

    def _meet(
        self, key: Any, entry: Any, port: int, row: list[Any], result: Rows
    ) -> None:
        """Pair a row with all of the other side."""
        value, partners = row[_VALUE], entry[1 - port]
        if self._is_timed:
            result += [_timed_pair(key, port, value, each[_VALUE]) for each in partners]
        elif port == LEFT:
            result += [(key, (value, each[_VALUE])) for each in partners]
        else:
            result += [(key, (each[_VALUE], value)) for each in partners]
        if partners and self._how is not How.INNER:
            row[_IS_MATCHED] = True
            for each in partners:
                each[_IS_MATCHED] = True
        entry[port].append(row)

    def _meet_once(
        self, key: Any, entry: Any, port: int, row: list[Any], result: Rows
    ) -> None:
        """Let left rows out, or drop them, as soon as there is a right row."""
        is_semi = self._how is How.SEMI
        if port == RIGHT:
            if is_semi:
                result += [(key, each[_VALUE]) for each in entry[LEFT]]
            entry[LEFT].clear()
            # Which right row it was makes no difference, and the last one stays longest.
            entry[RIGHT][:] = [[None, row[_EXPIRES_MS], True]]
        elif not entry[RIGHT]:
            entry[LEFT].append(row)
        elif is_semi:
            result.append((key, row[_VALUE]))

    def tick(self, now_ms: int) -> Iterator[Rows]:
        """Yield rows that expire without having met another; drop what expires."""
        self._index()
        for _, due in self._due.taken(now_ms):
            for keys in chunks(due, CHUNK_KEYS):
                entries = self.entries_of(keys)
                result: Rows = []
                for key in keys:
                    if key in entries:
                        self._expire(key, entries, now_ms, result)
                if result:
                    yield result

    def _expire(
        self, key: Any, entries: dict[Any, Any], now_ms: int, result: Rows
    ) -> None:
        entry = entries[key]
        for side in (LEFT, RIGHT):
            rows = entry[side]
            gone = [row for row in rows if row[_EXPIRES_MS] <= now_ms]
            if gone:
                rows[:] = [row for row in rows if row[_EXPIRES_MS] > now_ms]
                result += self._alone(key, side, gone)
        if entry[LEFT] or entry[RIGHT]:
            self._wait(key, entry)
        else:
            del entries[key]

    def _wait(self, key: Any, entry: Any) -> None:
        """Let a key be due when the first of its rows expires."""
        for row in (*entry[LEFT], *entry[RIGHT]):
            self._due.add(key, row[_EXPIRES_MS])

    def _alone(self, key: Any, side: int, rows: list[Any]) -> Rows:
        """Return what comes out of rows of which some have met no other."""
        if not self._how.pads(side):
            return []
        values = [row[_VALUE] for row in rows if not row[_IS_MATCHED]]
        if self._how is How.ANTI:
            return [(key, value) for value in values]
        if side == LEFT:
            return [(key, (value, None)) for value in values]
        return [(key, (None, value)) for value in values]

    def finish(self) -> Iterator[Rows]:
        """Yield all rows that have met no other."""
        if self._how.pads_left or self._how.pads_right:
            for entries in self.batches():
                yield [
                    row
                    for key, entry in entries
                    for side in (LEFT, RIGHT)
                    for row in self._alone(key, side, entry[side])
                ]

    def reset_after_flush(self) -> None:
        """Say nothing twice: rows that came out alone count as having met another."""
        if self._how.pads_left or self._how.pads_right:
            self._change(self._mark_said)

    def _mark_said(self, entry: Any) -> None:
        if self._how is How.ANTI:
            entry[LEFT].clear()
        for row in (*entry[LEFT], *entry[RIGHT]):
            row[_IS_MATCHED] = True

    def reset(self, ended: frozenset[int]) -> None:
        """Forget the rows of the round; sides that came once, for all rounds, stay."""

        def forget(entry: Any) -> None:
            for side in (LEFT, RIGHT):
                if side not in ended:
                    entry[side].clear()
                for row in entry[side]:
                    row[_IS_MATCHED] = False

        if LEFT in ended and not self._how.makes_pairs:
            msg = (
                f"the left side of {self.nodes[-1].user_name!r} comes from outside the "
                f"loop, and how={self._how.value!r} drops left rows in the first round "
                "that has a partner for them; let the left side be made in the round"
            )
            raise RuntimeError(msg)
        if ended:
            self._change(forget)
        else:
            self.forget_round()

    def begin_anew(self) -> None:
        self._due.clear()

    def _change(self, change: Any) -> None:
        """Change all entries in place, and let the next snapshot know."""
        keys = [key for entries in self.batches() for key, _ in entries]
        for some in chunks(keys):
            entries = self.entries_of(some)
            for key in some:
                change(entries[key])
                if not any(entries[key]):
                    del entries[key]

    def _index(self) -> None:
        """Find out when rows that were restored expire."""
        if not self._is_indexed:
            self._is_indexed = True
            for entries in self.batches():
                for key, entry in entries:
                    self._wait(key, entry)


def _timed_pair(key: Any, port: int, own: Any, other: Any) -> Any:
    (time, value), (other_time, other_value) = own, other
    pair = (value, other_value) if port == LEFT else (other_value, value)
    return key, (later(time, other_time), pair)
