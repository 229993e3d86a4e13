"""Tokens counted in place are those that `re` finds, in any text, cut anywhere."""

from __future__ import annotations

import re
from collections import Counter

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.columns.kernels import loading
from millstream.connectors.bad_rows import MalformedError
from millstream.connectors.text_frame import LINE, TextFormat
from millstream.operators.frames.token_counts import Kernels, TokenCounts, is_countable
from millstream.operators.frames.tokenize import TokenClass

pytestmark = pytest.mark.skipif(
    not loading.is_installed(), reason="Numba is not installed"
)

# Runs around the 8, 12, 16 and 64 bytes of the compiled loops, and line breaks.
RUNS = st.tuples(st.sampled_from("aZ_9.\n\r \0\x7fé"), st.integers(1, 70))
PLAIN = st.lists(RUNS, max_size=12).map(lambda runs: "".join(c * n for c, n in runs))
MIXED = st.text(alphabet="aZ. \n\ràΣİ²_\u0301\u200d中", max_size=40)
TEXTS = PLAIN | MIXED | st.text(max_size=60) | st.tuples(PLAIN, MIXED).map("".join)
KINDS = st.builds(
    TokenClass,
    st.sampled_from([r"\w", r"\S", r"\W", "[a-z]", "[^ ]", "[aΣ中]", "[\\n.]"]),
    st.booleans(),
)


def kernels() -> Kernels:
    """Return all that counting takes."""
    loaded = [loading.chosen(f, "native") for f in ("lines", "counts", "tokens")]
    lines, counts, tokens = loaded
    assert lines is not None
    assert counts is not None
    assert tokens is not None
    return Kernels(lines, counts, tokens)


def expected(rows: list[str | None], kind: TokenClass) -> Counter[str]:
    """Count what `re` finds."""
    found = re.compile(f"{kind.pattern}+").findall
    tokens = [token for text in rows for token in found(text or "")]
    return Counter(token.lower() if kind.is_lower else token for token in tokens)


def seen(counts: TokenCounts) -> Counter[str]:
    """Return all counts; a token may come twice."""
    result: Counter[str] = Counter()
    counted = counts.counted()
    for token, number in zip(counted.tokens, counted.counts.tolist(), strict=True):
        result[token] += number
    return result


@given(
    batches=st.lists(st.lists(TEXTS | st.none(), max_size=8), max_size=3), kind=KINDS
)
def test_rows_are_counted_as_by_re(
    batches: list[list[str | None]], kind: TokenClass
) -> None:
    """Batch after batch, nulls and foreign characters included."""
    counts = TokenCounts(kind, kernels())
    for rows in batches:
        counts.add(pl.Series(rows, dtype=pl.String))

    assert seen(counts) == expected([row for rows in batches for row in rows], kind)


@given(text=st.lists(TEXTS, max_size=6).map("\n".join), kind=KINDS, data=st.data())
def test_lines_of_a_file_are_counted_as_by_re(
    text: str, kind: TokenClass, data: st.DataObject
) -> None:
    """Where lines lie one after the other, whole, in a slice or with gaps."""
    kernels()
    lines = TextFormat().parse(text.encode())[LINE]
    start = data.draw(st.integers(0, len(lines)))
    step = data.draw(st.sampled_from([1, 1, 2]))
    counts = TokenCounts(kind, kernels())

    counts.add(lines[start:].gather_every(step))

    assert seen(counts) == expected(lines.to_list()[start::step], kind)


@given(text=st.lists(TEXTS, max_size=6).map("\r\n".join) | TEXTS)
def test_native_lines_are_those_of_polars(text: str) -> None:
    """With the line breaks of either system, and without the last one."""
    kernels()

    assert (
        TextFormat()
        .parse(text.encode())
        .equals(pl.read_lines(text.encode(), name=LINE))
    )


@given(
    before=TEXTS, wrong=st.sampled_from([b"\xff", b"\xc3", b"\xe4\xb8"]), after=TEXTS
)
def test_lines_that_are_not_unicode_are_malformed(
    before: str, wrong: bytes, after: str
) -> None:
    """Wherever the wrong bytes are; a character is never cut by the end of a line."""
    kernels()

    with pytest.raises(MalformedError, match="not UTF-8"):
        TextFormat().parse(before.encode() + wrong + b"." + after.encode())


def test_many_different_tokens_are_all_kept() -> None:
    """The table grows many times over, and long tokens move with it."""
    words = [f"Word{n}" + "x" * (n % 40) for n in range(30_000)]
    counts = TokenCounts(TokenClass(), kernels())
    for _ in range(2):
        counts.add(pl.Series([" ".join(words[i::10]) for i in range(10)]))

    assert len(counts) == 30_000
    assert seen(counts) == {word.lower(): 2 for word in words}


def test_a_class_of_everything_cannot_be_counted_in_place() -> None:
    """Rows are copied with something between them that is in no token."""
    assert is_countable(TokenClass("[^,]"))
    assert not is_countable(TokenClass(r"[\w\W]"))
