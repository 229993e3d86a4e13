r"""Text to tokens: the runs of one character class, in lower case if wanted.

The result is what ``re.findall`` gives for the class and, in lower case, ``str.lower``
for every token, for any Unicode text.  Text in ASCII goes through compiled loops over
its bytes, or through Polars until they are compiled; a row with other characters goes
through `re` itself, and its tokens are put back between those of its neighbors.

Nothing here knows plans, streams or what tokens are counted for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.columns.kernels import loading
from millstream.columns.kernels.native import NO_NULLS, Strings
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

    from numpy.typing import NDArray

    Block = bytes | bytearray | memoryview
    Integers = NDArray[np.int64]

__all__ = [
    "WORDS",
    "AsciiClass",
    "LocatedRows",
    "LocatedTokens",
    "TokenClass",
    "class_members",
    "located_rows",
    "located_tokens",
    "tokens",
]

ONE_CHARACTER = re.compile(r"\\[wWdDsS]|\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
NEWLINE = 10
ASCII_SIZE = 128

# The offset of a long token in its buffer is a signed number of 32 bits.
TEXT_MAX = 2**31 - 1

# Room for tokens to begin with; English text has one in about 5.5 bytes.
BYTES_PER_TOKEN = 5

# How far back from its end a block is searched for a place to cut it.
CUT_MAX = 4096


@dataclass(frozen=True, slots=True)
class TokenClass:
    r"""The characters that tokens are made of, and whether tokens are in lower case.

    Parameters
    ----------
    pattern
        A class in the syntax of `re`: ``\w``, ``\S``, ``[a-z0-9']``.
    is_lower
        Whether tokens are turned into lower case.
    """

    pattern: str = r"\w"
    is_lower: bool = True

    def __post_init__(self) -> None:
        if not ONE_CHARACTER.fullmatch(self.pattern):
            msg = (
                f"{self.pattern!r} is not a class of characters; write one like "
                r"'\w' or '[a-z0-9]', which matches one character of a token"
            )
            raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class AsciiClass:
    """ASCII characters that tokens of a text in ASCII are made of.

    They are found before, and turned into lower case after, they are put together.
    """

    members: frozenset[int]
    is_lower: bool = False


WORDS = TokenClass()
"""Letters, digits and underscores, in lower case."""


@dataclass(frozen=True, slots=True)
class LocatedTokens:
    """Tokens, and the row of the text that each of them comes from."""

    tokens: pl.Series
    rows: Integers


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """Address and length of every row of a text."""

    starts: NDArray[np.uint64]
    lengths: Integers
    #: What owns the memory.
    owner: pa.Array


def tokens(
    text: pl.Series | Block,
    kind: TokenClass | AsciiClass = WORDS,
    *,
    engine: loading.Engine = "auto",
) -> pl.Series:
    r"""Return the tokens of a `String` series, or of a block of UTF-8, in order.

    Tokens never cross the rows of a series or the lines of a block; null has none.

    Raises
    ------
    UnicodeDecodeError
        If a block is not UTF-8.

    Examples
    --------
    >>> tokens(b"To be,\nor not").to_list()
    ['to', 'be', 'or', 'not']
    """
    return _split(text, kind, engine, with_rows=False).tokens


def located_tokens(
    text: pl.Series | Block,
    kind: TokenClass | AsciiClass = WORDS,
    *,
    engine: loading.Engine = "auto",
) -> LocatedTokens:
    """Return tokens as `tokens` does, each with the number of its row or line.

    Examples
    --------
    >>> located_tokens(pl.Series(["To be,", None, "or"])).rows.tolist()
    [0, 0, 2]
    """
    return _split(text, kind, engine, with_rows=True)


def _split(
    text: pl.Series | Block,
    kind: TokenClass | AsciiClass,
    engine: loading.Engine,
    *,
    with_rows: bool,
) -> LocatedTokens:
    kernels = loading.chosen("tokens", engine)
    if isinstance(text, pl.Series):
        if text.dtype != pl.String:
            msg = f"tokens are split from String, but `{text.name}` is {text.dtype}"
            raise TypeError(msg)
        if kernels is None:
            return _split_by_polars(text, kind)
        return _split_series(text, kind, kernels, with_rows=with_rows)
    if kernels is None:
        lines = bytes(text).decode().split("\n")
        return _split_by_polars(pl.Series(lines, dtype=pl.String), kind)
    octets = np.frombuffer(text, dtype=np.uint8)
    if with_rows or (octets.size and octets.max() >= ASCII_SIZE):
        return _split_lines(octets, kind, kernels, with_rows=with_rows)
    return _split_ascii(octets, kind, kernels)


# ------------------------------------------------------------------ compiled loops


class _Run:
    """The tokens found so far by the compiled loop, and the room for more."""

    def __init__(
        self,
        size: int,
        kind: TokenClass | AsciiClass,
        kernels: ModuleType,
        *,
        with_rows: bool,
    ) -> None:
        if size > TEXT_MAX:
            msg = (
                f"a text of {size} bytes is too large to be split at once; cut it into "
                f"pieces of at most {TEXT_MAX} bytes"
            )
            raise ValueError(msg)
        room = size // BYTES_PER_TOKEN + kernels.ENDS_MAX
        self._kernels = kernels
        self._is_lower = kind.is_lower
        self._views = np.empty(2 * room, dtype=np.uint64)
        self._positions = np.empty(room if with_rows else 0, dtype=np.int64)
        self._long = np.empty(size, dtype=np.uint8)
        self._state = np.zeros(5, dtype=np.int64)

    def split(
        self, text: NDArray[np.uint8], size: int, ranges: NDArray[np.uint8]
    ) -> None:
        """Add the tokens of a text, which is `PADDING` longer than `size`."""
        self._state[2:] = 0
        while not self._kernels.split(
            text,
            size,
            ranges,
            self._is_lower,
            self._views,
            self._positions,
            self._long,
            self._state,
        ):
            # Doubled, but by copying only what there is.
            self._views = np.concatenate([self._views, np.empty_like(self._views)])
            self._positions = np.concatenate(
                [self._positions, np.empty_like(self._positions)]
            )

    def tokens(self) -> pl.Series:
        count, used = self._state[:2].tolist()
        views = self._views[: 2 * count]
        if 4 * count < self._views.size:
            views = views.copy()
        buffers = [None, pa.py_buffer(views)]
        if used:
            buffers.append(pa.py_buffer(self._long[:used].copy()))
        array = pa.Array.from_buffers(pa.string_view(), count, buffers, null_count=0)
        return _series(array)

    def rows(self, ends: Integers) -> Integers:
        """Return the row of every token, given where each row ends."""
        positions = self._positions[: int(self._state[0])]  # empty if not wanted
        rows = np.empty(positions.size, dtype=np.int64)
        self._kernels.rows_of(positions, ends, rows)
        return rows


def _split_ascii(
    octets: NDArray[np.uint8], kind: TokenClass | AsciiClass, kernels: ModuleType
) -> LocatedTokens:
    """Split a block in place, but for its end, which has no room after it."""
    members, ranges = class_members(kind, is_block=True)
    run = _Run(octets.size, kind, kernels, with_rows=False)
    cut = max(octets.size - kernels.PADDING, 0)
    searched = octets[max(cut - CUT_MAX, 0) : cut][::-1].tolist()
    steps = next((n for n, octet in enumerate(searched) if octet not in members), cut)
    cut -= steps
    run.split(octets, cut, ranges)
    tail = octets[cut:]
    run.split(np.concatenate([tail, _padding(kernels)]), tail.size, ranges)
    return LocatedTokens(run.tokens(), np.zeros(0, dtype=np.int64))


def _split_lines(
    octets: NDArray[np.uint8],
    kind: TokenClass | AsciiClass,
    kernels: ModuleType,
    *,
    with_rows: bool,
) -> LocatedTokens:
    """Split a block line by line."""
    breaks = np.flatnonzero(octets == NEWLINE)
    starts = np.concatenate([[0], breaks + 1])
    lengths = np.concatenate([breaks, [octets.size]]) - starts
    addresses = starts.astype(np.uint64) + np.uint64(octets.ctypes.data)

    def line(row: int) -> str:
        return octets[starts[row] : starts[row] + lengths[row]].tobytes().decode()

    return _split_rows(addresses, lengths, line, kind, kernels, with_rows=with_rows)


def _split_series(
    text: pl.Series,
    kind: TokenClass | AsciiClass,
    kernels: ModuleType,
    *,
    with_rows: bool,
) -> LocatedTokens:
    """Split a series row by row."""
    if len(text) == 0:
        return LocatedTokens(text.alias(""), np.zeros(0, dtype=np.int64))
    rows = located_rows(text, kernels)
    return _split_rows(
        rows.starts, rows.lengths, text.item, kind, kernels, with_rows=with_rows
    )


def located_rows(text: pl.Series, kernels: ModuleType) -> LocatedRows:
    """Return where in memory the rows are; that of null is empty."""
    starts = np.empty(len(text), dtype=np.uint64)
    lengths = np.empty(len(text), dtype=np.int64)
    if len(text) == 0:
        return LocatedRows(starts, lengths, text)
    array = text.to_arrow(compat_level=pl.CompatLevel.newest())
    strings = Strings.of(array)
    nulls = text.is_null().to_numpy() if text.null_count() else NO_NULLS
    kernels.locate(strings.views, strings.buffers, nulls, starts, lengths)
    return LocatedRows(starts, lengths, array)


def _split_rows(
    starts: NDArray[np.uint64],
    lengths: Integers,
    row_text: Callable[[int], str],
    kind: TokenClass | AsciiClass,
    kernels: ModuleType,
    *,
    with_rows: bool,
) -> LocatedTokens:
    """Split rows of text at these addresses; `row_text` gives that of a foreign row."""
    _, ranges = class_members(kind, is_block=False)
    packed = np.empty(int(lengths.sum()) + lengths.size + kernels.PADDING, np.uint8)
    ends = np.empty(lengths.size, dtype=np.int64)
    is_foreign = np.empty(lengths.size, dtype=np.bool_)
    size = kernels.pack(starts, lengths, packed, ends, is_foreign)
    foreign = np.flatnonzero(is_foreign).tolist()
    run = _Run(size, kind, kernels, with_rows=with_rows or bool(foreign))
    run.split(packed, size, ranges)
    native = LocatedTokens(run.tokens(), run.rows(ends))
    return _merged(native, [(row, row_text(row)) for row in foreign], kind)


def _padding(kernels: ModuleType) -> NDArray[np.uint8]:
    return np.zeros(kernels.PADDING, dtype=np.uint8)


@lru_cache(maxsize=64)
def class_members(
    kind: TokenClass | AsciiClass, *, is_block: bool
) -> tuple[frozenset[int], NDArray[np.uint8]]:
    """Return the ASCII members of a class, also as pairs of first code and number."""
    if isinstance(kind, AsciiClass):
        members = sorted(kind.members)
    else:
        matches = re.compile(kind.pattern).fullmatch
        members = [code for code in range(ASCII_SIZE) if matches(chr(code))]
    if is_block and NEWLINE in members:
        members.remove(NEWLINE)
    inside = frozenset(members)
    starts = [code for code in members if code - 1 not in inside]
    ends = [code for code in members if code + 1 not in inside]
    ranges = [(low, high - low + 1) for low, high in zip(starts, ends, strict=True)]
    return inside, np.array(ranges, dtype=np.uint8).reshape(-1)


# ------------------------------------------------------------------ without them


def _split_by_polars(text: pl.Series, kind: TokenClass | AsciiClass) -> LocatedTokens:
    rows = pl.DataFrame({"text": text}).with_row_index("row").drop_nulls()
    is_ascii = pl.col("text").str.len_bytes() == pl.col("text").str.len_chars()
    members, _ = class_members(kind, is_block=False)
    # A class without members is written as one that no ASCII text matches.
    inside = "".join(f"\\x{{{code:02X}}}" for code in sorted(members)) or "\\x{80}"
    found = pl.col("text").str.extract_all(f"[{inside}]+")
    split = rows.filter(is_ascii).with_columns(found).explode("text").drop_nulls()
    lowered = split["text"].str.to_lowercase() if kind.is_lower else split["text"]
    plain = LocatedTokens(lowered.alias(""), split["row"].cast(pl.Int64).to_numpy())
    return _merged(plain, rows.filter(~is_ascii).rows(), kind)


def _merged(
    plain: LocatedTokens,
    foreign: Sequence[tuple[Any, ...]],
    kind: TokenClass | AsciiClass,
) -> LocatedTokens:
    """Put the tokens of foreign rows, by their numbers, between those of the others."""
    if not foreign:
        return plain
    assert isinstance(kind, TokenClass), "a class of ASCII was given other text"
    findall = re.compile(f"{kind.pattern}+").findall
    pairs = [(row, token) for row, text in foreign for token in findall(text)]
    words = [token.lower() if kind.is_lower else token for _, token in pairs]
    rows = np.array([row for row, _ in pairs], dtype=np.int64)
    merged = np.concatenate([plain.rows, rows])
    order = np.argsort(merged, kind="stable")
    everything = pl.concat([plain.tokens, pl.Series(words, dtype=pl.String)])
    return LocatedTokens(everything.gather(order), merged[order])


def _series(array: pa.Array) -> pl.Series:
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    return series
