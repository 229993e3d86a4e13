"""Tokens: both engines agree with `re` on any text, cut anywhere."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.columns.kernels import loading
from millstream.operators.frames.tokenize import TokenClass, located_tokens, tokens

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

# Runs of members and separators around the 8, 12, 16 and 64 bytes of the native loop.
RUNS = st.tuples(st.sampled_from("aZ_9.\n \0\x7f"), st.integers(1, 70))
PLAIN = st.lists(RUNS, max_size=12).map(lambda runs: "".join(c * n for c, n in runs))
MIXED = st.text(alphabet="aZ. \nàΣİ²_\u0301\u200d中", max_size=40)
TEXTS = PLAIN | MIXED | st.text(max_size=60) | st.tuples(PLAIN, MIXED).map("".join)
KINDS = st.builds(
    TokenClass,
    st.sampled_from([r"\w", r"\S", r"\W", "[a-z]", "[^ ]", "[aΣ中]", "[\\n.]"]),
    st.booleans(),
)


def expected(rows: list[str | None], kind: TokenClass) -> list[tuple[int, str]]:
    found = re.compile(f"{kind.pattern}+").findall
    return [
        (row, token.lower() if kind.is_lower else token)
        for row, text in enumerate(rows)
        for token in found(text or "")
    ]


@both_engines
@given(rows=st.lists(TEXTS | st.none(), max_size=8), kind=KINDS, data=st.data())
def test_rows_split_as_by_re(
    engine: loading.Engine,
    rows: list[str | None],
    kind: TokenClass,
    data: st.DataObject,
) -> None:
    """Foreign rows keep their place between the others, also in a slice."""
    start = data.draw(st.integers(0, len(rows)))
    text = pl.Series(rows, dtype=pl.String)[start:]
    wanted = expected(rows[start:], kind)

    found = located_tokens(text, kind, engine=engine)

    assert list(zip(found.rows.tolist(), found.tokens, strict=True)) == wanted
    assert tokens(text, kind, engine=engine).to_list() == [word for _, word in wanted]


@both_engines
@given(text=TEXTS, kind=KINDS)
def test_a_block_splits_as_its_lines_do(
    engine: loading.Engine, text: str, kind: TokenClass
) -> None:
    """With and without the numbers of lines."""
    wanted = expected(list(text.split("\n")), kind)

    found = located_tokens(text.encode(), kind, engine=engine)
    plain = tokens(memoryview(text.encode()), kind, engine=engine)

    assert list(zip(found.rows.tolist(), found.tokens, strict=True)) == wanted
    assert plain.to_list() == [word for _, word in wanted]
