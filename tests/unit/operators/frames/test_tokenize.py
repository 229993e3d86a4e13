"""Tokens: what `re.findall` and `str.lower` give, by either engine."""

from __future__ import annotations

import re

import polars as pl
import pytest

from millstream.columns.kernels import loading
from millstream.errors import UsageError
from millstream.operators.frames.tokenize import (
    WORDS,
    TokenClass,
    located_tokens,
    tokens,
)

both_engines = pytest.mark.parametrize(
    "engine",
    [
        "polars",
        pytest.param(
            "native",
            marks=pytest.mark.skipif(
                not loading.is_installed(), reason="Numba is not installed"
            ),
        ),
    ],
)


@both_engines
def test_words_are_split_and_lowered(engine: loading.Engine) -> None:
    """Letters, digits and underscores make a word; all else is between words."""
    text = b"To be, or NOT_to be:\n[that] is-the 1st question!\n"

    found = tokens(text, engine=engine)

    assert found.dtype == pl.String
    assert " ".join(found) == "to be or not_to be that is the 1st question"


@both_engines
def test_tokens_of_every_length_are_whole(engine: loading.Engine) -> None:
    """Short ones lie inside their view, long ones beside it; both in lower case."""
    expected = ["Zq9_"[n % 4] * n for n in range(1, 200)]

    found = tokens(" ".join(expected).encode(), engine=engine)

    assert found.to_list() == [token.lower() for token in expected]


@both_engines
def test_tokens_compare_as_the_strings_they_are(engine: loading.Engine) -> None:
    """Nothing of what follows a token in the text stays behind in its view."""
    expected = ["abcdefghijklmnop"[:length] for length in range(1, 17)]
    text = "".join(token + between for between in "!?.,:" for token in expected)

    found = tokens(text.encode() + b"?" * 100, engine=engine)

    assert (found == pl.Series(expected * 5)).all()
    assert found.n_unique() == 16


@both_engines
def test_each_token_knows_its_row(engine: loading.Engine) -> None:
    """Rows without tokens, and null, leave a gap in the numbers."""
    rows = pl.Series(["a b", None, "", "---", "É c", "d"])

    found = located_tokens(rows, engine=engine)

    assert found.tokens.to_list() == ["a", "b", "é", "c", "d"]
    assert found.rows.tolist() == [0, 0, 4, 4, 5]


@both_engines
def test_lines_are_the_rows_of_a_block(engine: loading.Engine) -> None:
    """The number of a line counts from 0, empty lines included."""
    found = located_tokens(b"a\n\nb c\n", engine=engine)

    assert found.tokens.to_list() == ["a", "b", "c"]
    assert found.rows.tolist() == [0, 2, 2]


@both_engines
def test_lower_case_is_that_of_python(engine: loading.Engine) -> None:
    """A sigma at the end of a word, and a letter whose lower case is two."""
    text = "ΟΔΟΣ İstanbul STRASSE Straße ÀÉ ǅ x²"

    found = tokens(text.encode(), engine=engine)

    assert found.to_list() == [word.lower() for word in re.findall(r"\w+", text)]


@both_engines
@pytest.mark.parametrize(
    "pattern",
    [r"\S", "[a-z']", "[^,]", r"[\w.@-]", r"[\[]", "[]]", r"\D", "[ü]", "[^]a]"],
)
@pytest.mark.parametrize("letter", ["u", "ü"])
def test_a_class_may_contain_what_it_likes(
    engine: loading.Engine, pattern: str, letter: str
) -> None:
    """Brackets, negation, quotes, even the line break, which still ends a line."""
    text = f"Don't stop\nuser@example.org, [x] {letter}nder-way"

    found = tokens(text.encode(), TokenClass(pattern, is_lower=False), engine=engine)

    lines = [re.findall(f"{pattern}+", line) for line in text.split("\n")]
    assert found.to_list() == [token for line in lines for token in line]


@both_engines
def test_texts_without_tokens_give_none(engine: loading.Engine) -> None:
    """The result is a series of strings all the same."""
    for text in (b"", b"\n", b" " * 1000, b".", pl.Series([], dtype=pl.String)):
        found = tokens(text, engine=engine)
        assert found.dtype == pl.String
        assert found.is_empty()


@both_engines
def test_a_series_may_be_a_slice_in_pieces(engine: loading.Engine) -> None:
    """Offsets into buffers and several chunks are nothing special."""
    rows = pl.Series([f"Row {n} of a text that is rather long" for n in range(50)])
    pieces = pl.concat([rows[3:20], rows[40:]], rechunk=False)

    found = located_tokens(pieces, engine=engine)

    expected = [row.lower().split() for row in pieces.to_list()]
    assert found.tokens.to_list() == [word for row in expected for word in row]
    assert found.rows.tolist() == [n for n, row in enumerate(expected) for _ in row]


@both_engines
def test_tokens_outlive_their_text(engine: loading.Engine) -> None:
    """The result owns its memory."""
    text = bytearray(b"some Words and Onewordwhichisverylong")
    found = tokens(text, engine=engine)

    text[:] = b"\0" * len(text)

    assert found.to_list() == ["some", "words", "and", "onewordwhichisverylong"]


@both_engines
def test_a_block_that_is_not_unicode_is_refused(engine: loading.Engine) -> None:
    """Half a character cannot be told from a separator."""
    with pytest.raises(UnicodeDecodeError):
        tokens(b"caf\xc3 bar", engine=engine)


def test_only_text_has_tokens() -> None:
    """Bytes of a Binary column would have to be decoded first."""
    with pytest.raises(TypeError, match="`n` is Int64"):
        tokens(pl.Series("n", [1, 2]))


@pytest.mark.parametrize("pattern", ["", r"\w+", "ab", "a|b", "(a)", "[a][b]", "[a"])
def test_a_pattern_is_one_class_of_characters(pattern: str) -> None:
    """Anything else would mean something different to each engine."""
    with pytest.raises(UsageError, match="not a class of characters"):
        TokenClass(pattern)


def test_words_are_the_default() -> None:
    """What most people mean by a token."""
    assert TokenClass(r"\w", is_lower=True) == WORDS
