"""How often each token occurs, counted while the text is read.

What `tokenize.tokens` finds, without making the tokens: compiled loops hash each one
where it stands and add to its count.  Rows that follow one another in memory, as lines
of a file do, are not even looked at one by one.  What only `re` can tell, runs with
characters outside ASCII, is looked at once per block and run.

Nothing here knows plans, streams or what is done with the counts.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.columns.kernels import loading
from millstream.columns.kernels.native import Strings
from millstream.operators.frames.tokenize import (
    ASCII_SIZE,
    NEWLINE,
    TEXT_MAX,
    TokenClass,
    class_members,
    located_rows,
)

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from millstream.operators.frames.tokenize import AsciiClass

__all__ = ["Counted", "Kernels", "TokenCounts", "is_countable", "ready_kernels"]

CARRIAGE_RETURN = 13

# How far back from its end a text is searched for a place to cut it.
CUT_MAX = 4096

# Entries of a table to begin with; at most 5 of 8 are used.
ENTRIES_MIN = 1 << 12
FULL_OF_8 = 5

# Runs outside ASCII that are collected before they are looked at.
FOREIGN_MAX = 1 << 13


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled loops that counting takes."""

    lines: ModuleType
    counts: ModuleType
    tokens: ModuleType


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens and how often each was seen; a token may come twice."""

    tokens: pl.Series
    counts: NDArray[np.int64]


def ready_kernels() -> Kernels | None:
    """Return the compiled loops if all are there."""
    lines, counts = loading.ready("lines"), loading.ready("counts")
    tokens = loading.ready("tokens")
    if lines is None or counts is None or tokens is None:
        return None
    return Kernels(lines, counts, tokens)


def is_countable(kind: TokenClass | AsciiClass) -> bool:
    """Whether some ASCII character is outside the class, so that it ends tokens."""
    members, _ = class_members(kind, is_block=False)
    return len(members) < ASCII_SIZE


class TokenCounts:
    """The tokens seen so far and how often.

    Parameters
    ----------
    kind
        What tokens are made of.
    separator
        If given, the one character outside the class: what is between two of them is
        a token even where it is empty.
    """

    def __init__(
        self, kind: TokenClass | AsciiClass, kernels: Kernels, separator: str = ""
    ) -> None:
        self._kind = kind
        self._kernels = kernels
        self._separator = separator
        self._separators = 0
        members, self._ranges = class_members(kind, is_block=False)
        self._between = min(set(range(ASCII_SIZE)) - members)
        self._ends_with_lines = not members & {NEWLINE, CARRIAGE_RETURN}
        self._entries = np.zeros(kernels.counts.ENTRY * ENTRIES_MIN, dtype=np.uint64)
        self._arena = np.empty(0, dtype=np.uint8)
        self._runs = np.empty(2 * FOREIGN_MAX, dtype=np.int64)
        self._state = np.zeros(8, dtype=np.int64)
        self._foreign: Counter[str] = Counter()

    def __len__(self) -> int:
        known = int(self._state[self._kernels.counts.KNOWN])
        return known + len(self._foreign) + bool(self._separators)

    def add(self, text: pl.Series) -> None:
        """Count the tokens of a `String` series; null has none."""
        if text.is_empty():
            return
        array = text.to_arrow(compat_level=pl.CompatLevel.newest())
        strings = Strings.of(array)
        found = np.zeros(3, dtype=np.int64)
        if self._is_stretch(array, strings, found):
            row, begin, end = found.tolist()
            self._add_rows(text[:row])
            octets = np.frombuffer(array.buffers()[2], dtype=np.uint8)
            self._add_in_place(octets[begin:end])
        else:
            self._add_rows(text)

    def counted(self) -> Counted:
        """Return all tokens in any order."""
        kernels, known = (
            self._kernels.counts,
            int(self._state[self._kernels.counts.KNOWN]),
        )
        views = np.empty(2 * known, dtype=np.uint64)
        counts = np.empty(known, dtype=np.int64)
        kernels.gather(self._entries, views, counts)
        arena = self._arena[: int(self._state[kernels.ARENA_USED])].copy()
        buffers = [None, pa.py_buffer(views), pa.py_buffer(arena)]
        array = pa.Array.from_buffers(pa.string_view(), known, buffers, null_count=0)
        tokens = pl.from_arrow(array)
        assert isinstance(tokens, pl.Series)
        more = self._foreign.copy()
        if self._separators:
            more[""] = self._separators - int(counts.sum())
        others = pl.Series(list(+more), dtype=pl.String)
        numbers = np.array(list((+more).values()), dtype=np.int64)
        return Counted(pl.concat([tokens, others]), np.concatenate([counts, numbers]))

    def _is_stretch(
        self, array: pa.Array, strings: Strings, found: NDArray[np.int64]
    ) -> bool:
        """Whether all rows but some short ones at the start are one text in memory."""
        if not self._ends_with_lines or array.null_count or len(strings.buffers) != 1:
            return False
        size = array.buffers()[2].size
        stretch = self._kernels.lines.stretch
        return bool(stretch(strings.views, strings.buffers, size, found))

    def _add_rows(self, text: pl.Series) -> None:
        """Copy rows one after the other, then count."""
        rows = located_rows(text, self._kernels.tokens)
        counts = self._kernels.counts
        room = int(rows.lengths.sum()) + rows.lengths.size + counts.PADDING
        packed = np.empty(room, dtype=np.uint8)
        size = counts.join(rows.starts, rows.lengths, self._between, packed)
        if self._separator:
            self._separators += int(np.count_nonzero(packed[:size] == self._between))
        self._add_padded(packed, size)

    def _add_in_place(self, octets: NDArray[np.uint8]) -> None:
        """Count where the text is, but for its end, which has no room after it."""
        padding = self._kernels.counts.PADDING
        cut = max(octets.size - padding, 0)
        begin = max(cut - CUT_MAX, 0)
        breaks = np.flatnonzero(octets[begin:cut] == NEWLINE)
        cut = begin + int(breaks[-1]) if breaks.size else 0
        self._add_padded(octets, cut)
        tail = np.zeros(octets.size - cut + padding, dtype=np.uint8)
        tail[: octets.size - cut] = octets[cut:]
        self._add_padded(tail, octets.size - cut)

    def _add_padded(self, text: NDArray[np.uint8], size: int) -> None:
        """Count in the first `size` bytes of a text that is `PADDING` longer."""
        if size > TEXT_MAX:
            msg = (
                f"a text of {size} bytes is too large to be counted at once; cut it "
                f"into pieces of at most {TEXT_MAX} bytes"
            )
            raise ValueError(msg)
        counts, state = self._kernels.counts, self._state
        for place in (counts.POSITION, counts.IS_OPEN, counts.IS_FOREIGN):
            state[place] = 0
        is_done = False
        while not is_done:
            self._make_room(size)
            is_done = counts.count(
                text,
                size,
                self._ranges,
                self._kind.is_lower,
                self._entries,
                self._arena,
                self._runs,
                state,
            )
            self._count_foreign(text)

    def _make_room(self, size: int) -> None:
        """See that the kernel can do at least one step of a text of this size."""
        counts, state = self._kernels.counts, self._state
        full = self._entries.size // counts.ENTRY * FULL_OF_8 // 8
        if state[counts.KNOWN] + counts.ENDS_MAX > full:
            larger = np.zeros(2 * self._entries.size, dtype=np.uint64)
            counts.move(self._entries, larger)
            self._entries, full = larger, 2 * full
        state[counts.ROOM] = full
        used = int(state[counts.ARENA_USED])
        if used + size + 8 > self._arena.size:
            arena = np.empty(2 * used + size + 8, dtype=np.uint8)
            arena[:used] = self._arena[:used]
            self._arena = arena

    def _count_foreign(self, text: NDArray[np.uint8]) -> None:
        """Count the tokens of runs that have characters outside ASCII."""
        number = int(self._state[self._kernels.counts.FOREIGN])
        if not number:
            return
        self._state[self._kernels.counts.FOREIGN] = 0
        pairs = self._runs[: 2 * number].reshape(-1, 2).tolist()
        assert isinstance(self._kind, TokenClass), "a class of ASCII got other text"
        findall = re.compile(f"{self._kind.pattern}+").findall
        runs = Counter(text[start : start + size].tobytes() for start, size in pairs)
        for run, times in runs.items():
            for token in findall(run.decode()):
                self._foreign[token.lower() if self._kind.is_lower else token] += times
