"""Find out which people know each other, directly or through others.

What it shows: twice the same question.  `delta_iterate` works in rounds on all friendships
at once, and only on what got better; `loop` takes friendships as they come and corrects
what it said before.

    millstream run examples/connected_components.py --on local --workers 2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

FRIENDS = [
    ("ada", "bob"),
    ("bob", "cyd"),
    ("dan", "eve"),
    ("gus", "eve"),
    ("fay", "fay"),
]


class Component(ms.StatefulFunction[str, tuple[str, str], tuple[str, str]]):
    """Keeps a person's friends, and the first name that is known of their circle."""

    friends = ms.ListState[str]()
    least = ms.ValueState[str]()

    def on_record(self, key: str, value: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """Tell the friends when there is a new friend, or a better name."""
        kind, name = value
        known = self.least.get() or key
        if kind == "friend":
            self.friends.append(name)
            yield name, known
        elif name < known:
            known = name
            yield from ((friend, known) for friend in self.friends.get())
        self.least.update(known)

    def on_end(self, key: str) -> Iterator[tuple[str, str]]:
        """Say what came out."""
        yield "", f"{key} {self.least.get()}"


def tell(rows: ms.Stream) -> tuple[ms.Stream, ms.Stream]:
    """Send names to friends, round and round."""
    told = rows.key_by(lambda row: row[0]).map(lambda row: row[1:])
    made = told.process(Component()).drop_key()
    again = made.filter(lambda row: row[0]).map(lambda row: (row[0], "name", row[1]))
    return again, made.filter(lambda row: not row[0]).map(lambda row: row[1])


beside = [*FRIENDS, *((b, a) for a, b in FRIENDS)]
flow = ms.Flow("connected-components")
people = flow.from_iterable(sorted({a for a, _ in beside})).key_by(lambda name: name)
in_rounds = people.delta_iterate(
    lambda known, name: name if known is None or name < known else None,
    lambda better: (
        better.unkey()
        .flat_map(lambda row: [(b, row[1]) for a, b in beside if a == row[0]])
        .key_by(lambda row: row[0])
        .map(lambda row: row[1])
    ),
).collect()
friendships = flow.from_iterable([(a, "friend", b) for a, b in beside])
as_they_come = friendships.loop(tell).collect()

if __name__ == "__main__":
    flow.run()
    found = sorted(f"{name} {least}" for name, least in in_rounds.result())
    print(", ".join(found))
    print("the same as they come:", sorted(as_they_come.result()) == found)
