"""Count windows: so many elements of a key, whenever they come.

An element's number is its place; the rest is as for windows in time.  Where only the
number of elements matters, a key has nothing but that number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from millstream.operators.windows.base import KeyedWindowOperator
from millstream.operators.windows.content import Accumulators, content_of
from millstream.operators.windows.panes import FEW_PANES, TwoStacks, stored_in
from millstream.plan.windows import CountWindows, Panes, Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.state.table import Table

__all__ = [
    "CountWindowOperator",
    "PanedCountWindowOperator",
    "WindowCountOperator",
    "has_few_panes",
]

_key = itemgetter(0)
_SEEN, _DUE_AT, _PANES = range(3)


class _CountOperator(KeyedWindowOperator, ABC):
    """What all count windows have in common: the end of the input."""

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        spec = nodes[-1].spec
        assert isinstance(spec, Windowed)
        assert isinstance(spec.window, CountWindows)
        self._window = spec.window
        #: Nothing is said at the end, so nothing need be forgotten then.
        self.keeps_keys = spec.window.drops_incomplete
        super().__init__(nodes, table)

    @abstractmethod
    def begun(self, key: Any, entry: Any) -> Iterator[Any]:
        """Yield the rows of windows that have elements and are not full."""

    def finish(self) -> Iterator[Rows]:
        if not self._window.drops_incomplete:
            for entries in self.batches():
                yield [row for each in entries for row in self.begun(*each)]


class CountWindowOperator(_CountOperator):
    """Any aggregate of count windows.

    The entry of a key has the number of its elements, the number at which the next window
    is full, and the panes.
    """

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        window = self._window
        layout = Panes(window.size, window.slide)
        #: Panes from one window to the next, and of a window.
        self._step, self._count = layout.step, layout.count
        overlaps = window.size > window.slide
        self._content = content_of(
            self.spec, is_timed=False, is_merging=overlaps, is_kept=overlaps
        )
        is_merged = isinstance(self._content, Accumulators)
        #: Whether windows share more than panes.
        self._shares = is_merged and self._count > FEW_PANES
        self._slides: dict[Any, TwoStacks] = {}

    def process(self, rows: Rows) -> Rows:
        size, slide = self._window.size, self._window.slide
        rest, has_gaps = size % slide, slide > size
        entries, put = self.touched(rows), self._content.put
        made: Rows = []
        rows_iterator = iter(rows)
        for key, value in rows_iterator:
            entry = entries.get(key)
            if entry is None:
                entries[key] = entry = [0, size, {}]
            seen, due_at, panes = entry
            entry[_SEEN] = seen + 1
            pane = seen // slide
            if rest:
                is_second = seen % slide >= rest
                if is_second and has_gaps:
                    continue
                pane = 2 * pane + is_second
            put(panes, pane, value, 0)
            if seen + 1 == due_at:
                made.append(self._full(key, entry))
        return made

    def begin_anew(self) -> None:
        self._slides.clear()

    def begin_undo(self, rows: Rows) -> Callable[[], None]:
        undo = super().begin_undo(rows)

        def undo_all() -> None:
            undo()
            self._slides.clear()

        return undo_all

    def _full(self, key: Any, entry: list[Any]) -> Any:
        """Return the row of a window that has become full, and drop what is over."""
        _, end, panes = entry
        size, slide = self._window.size, self._window.slide
        bounds = Window(end - size, end)
        begin = bounds.start // slide * self._step
        entry[_DUE_AT] = end + slide
        row = self.row(key, bounds, self._result(key, panes, bounds, begin))
        for pane in range(begin, begin + self._step):
            panes.pop(pane, None)
        return row

    def _result(
        self, key: Any, panes: dict[int, Any], bounds: Window, begin: int
    ) -> Any:
        content = self._content
        if not self._shares:
            stored = stored_in(panes, begin, begin + self._count)
            return content.result(bounds, stored)
        assert isinstance(content, Accumulators)
        slides = self._slides.get(key)
        if slides is None:
            self._slides[key] = slides = TwoStacks(self._count, content.merged)
        return content.finished(slides.put_together(panes, begin, content.part))

    def begun(self, key: Any, entry: list[Any]) -> Iterator[Any]:
        """Yield the rows of windows that have elements and are not full."""
        seen, due_at, panes = entry
        slide = self._window.slide
        for start in range(due_at - self._window.size, seen, slide):
            begin = start // slide * self._step
            window = Window(start, seen)
            stored = stored_in(panes, begin, begin + self._count)
            yield self.row(key, window, self._content.result(window, stored))


class PanedCountWindowOperator(_CountOperator):
    """Count windows of a few panes, of which a slide has one, with accumulators.

    The entry of a key has the number of elements that its last pane lacks, 0 if it has
    none, the accumulator of that, those of full panes, and the number of the first.
    """

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        size, slide = self._window.size, self._window.slide
        self._count = size // slide
        overlaps = size > slide
        content = content_of(
            self.spec, is_timed=False, is_merging=overlaps, is_kept=overlaps
        )
        assert isinstance(content, Accumulators)
        self._content = content

    def process(self, rows: Rows) -> Rows:
        slide, entries = self._window.slide, self.touched(rows)
        aggregate = self._content.aggregate
        first, update = aggregate.first, aggregate.update
        made: Rows = []
        rows_iterator = iter(rows)
        for key, value in rows_iterator:
            if key in entries:
                entry = entries[key]
                lacking = entry[0]
                part = update(entry[1], value) if lacking else first(value)
                lacking = (lacking or slide) - 1
            else:
                part, lacking = first(value), slide - 1
                entries[key] = entry = [lacking, part, [], 0]
            entry[0], entry[1] = lacking, part
            if not lacking:
                self._end_pane(key, entry, made)
        return made

    def begun(self, key: Any, entry: list[Any]) -> Iterator[Any]:
        lacking, part, parts, number = entry
        slide = self._window.slide
        parts = [*parts, part] if lacking else parts
        end = (number + len(parts)) * slide - lacking
        for place in range(len(parts)):
            window = Window((number + place) * slide, end)
            yield self.row(key, window, self._content.finished(parts[place:]))

    def _end_pane(self, key: Any, entry: list[Any], made: Rows) -> None:
        """Put a full pane to the others, and give the window that is full by it."""
        _, part, parts, number = entry
        entry[1] = None
        parts.append(part)
        if len(parts) < self._count:
            return
        result = self._content.finished(parts)
        if self.spec.shows_window:
            start = number * self._window.slide
            result = (Window(start, start + self._window.size), result)
        made.append((key, result))
        del parts[0]
        entry[3] = number + 1


class WindowCountOperator(_CountOperator):
    """How many elements full windows have: a number that everybody knows.

    The entry of a key is the number of its elements.
    """

    def process(self, rows: Rows) -> Rows:
        seen = self.touched(rows)
        size, slide = self._window.size, self._window.slide
        made: Rows = []
        for key, more in self._counts(rows):
            before = seen[key] if key in seen else 0  # noqa: SIM401 - half the time
            seen[key] = after = before + more
            if after >= size:
                over = (before - size) // slide + 1 if before >= size else 0
                full = (after - size) // slide + 1
                if full > over:
                    made += self._full(key, over, full)
        return made

    def _counts(self, rows: Rows) -> Iterable[tuple[Any, int]]:
        if self.spec.is_combined:
            return rows
        rows_iterator = iter(rows)
        return Counter(map(_key, rows_iterator)).items()

    def _full(self, key: Any, first: int, end: int) -> Rows:
        size, slide = self._window.size, self._window.slide
        if not self.spec.shows_window:
            return [(key, size)] * (end - first)
        starts = (number * slide for number in range(first, end))
        return [self.row(key, Window(start, start + size), size) for start in starts]

    def begun(self, key: Any, entry: int) -> Iterator[Any]:
        size, slide, seen = self._window.size, self._window.slide, entry
        full = (seen - size) // slide + 1 if seen >= size else 0
        for start in range(full * slide, seen, slide):
            yield self.row(key, Window(start, seen), seen - start)


def has_few_panes(spec: Windowed, window: CountWindows) -> bool:
    """Whether windows are of a few panes, of which a slide has one, with accumulators."""
    aggregate, few = spec.aggregate, FEW_PANES * window.slide
    if aggregate is None or window.size % window.slide or window.size > few:
        return False
    return aggregate.merge is not None or window.size == window.slide
