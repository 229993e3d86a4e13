r"""Counting fields: a block is regular only if Python's `csv` says the same of every line.

Method: Hypothesis draws lines full of separators and quotes, and some that are longer than
the 64 bytes which the kernel looks at together.  What the kernel must say is said in the
plainest way, byte by byte, and whatever it calls regular is given to `csv` and to Polars.
"""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.columns.kernels import loading
from millstream.connectors.csv import CsvDialect, CsvFormat

pytest.importorskip("numba")

FIELDS = st.sampled_from(
    [
        *("", "a", '"b,c"', '""', '"d""e"', '"f', 'g"', 'h"i', 'j"k,l"m', '"n"o'),
        *('"p"q"r"', "x" * 61, f'"{"y," * 33}"', "s,t", "u\nv", '"w\nx"', "é", '"z"\r'),
    ]
)
LINES = st.lists(FIELDS, min_size=1, max_size=4).map(",".join)
TEXTS = st.lists(LINES, max_size=8).map(lambda lines: "".join(f"{n}\n" for n in lines))
WIDTHS = st.integers(1, 4)


@pytest.fixture(scope="module")
def kernels() -> Any:
    """Wait for the kernels, which would otherwise come whenever they are ready."""
    return loading.chosen("fields", "native")


def counted(kernels: Any, text: str, width: int, *, has_quotes: bool = True) -> int:
    data = np.frombuffer(text.encode(), np.uint8)
    rows: int = kernels.regular_rows(data, ord(","), ord('"'), int(has_quotes), width)
    return rows


def is_regular(line: str, width: int) -> bool:
    """Say in the plainest way whether a line plainly has so many fields."""
    is_inside, fields, before = False, 1, ","
    for character in line.removesuffix("\r"):
        if character == '"':
            if not is_inside and before not in ',"':
                return False
            is_inside = not is_inside
        elif not is_inside and before == '"' and character != ",":
            return False
        elif character == "," and not is_inside:
            fields += 1
        before = character
    return not is_inside and fields == width


@settings(deadline=None)
@given(text=TEXTS, width=WIDTHS)
def test_lines_are_regular_if_each_of_them_is(
    kernels: Any, text: str, width: int
) -> None:
    """Whatever falls on the seam between two looks of 64 bytes."""
    lines = text.split("\n")[:-1]
    expected = len(lines) if all(is_regular(n, width) for n in lines) else -1

    assert counted(kernels, text, width) == expected


@settings(deadline=None)
@given(text=TEXTS, width=WIDTHS)
def test_without_quotes_every_separator_counts(
    kernels: Any, text: str, width: int
) -> None:
    """A quote is then a character like any other."""
    lines = text.split("\n")[:-1]
    is_right = all(line.count(",") == width - 1 for line in lines)

    found = counted(kernels, text, width, has_quotes=False)

    assert found == (len(lines) if is_right else -1)


@settings(deadline=None)
@given(text=TEXTS, width=WIDTHS)
def test_others_see_the_same_fields_in_regular_lines(
    kernels: Any, text: str, width: int
) -> None:
    """So nothing is lost when Polars parses some of the columns only."""
    lines = text.split("\n")[:-1]
    regular = [line for line in lines if counted(kernels, f"{line}\n", width) == 1]
    names = [str(number) for number in range(width)]
    line_format = CsvFormat(
        pl.Schema(dict.fromkeys(names, pl.String)), CsvDialect(has_header=False)
    )
    block = "".join(f"{line}\n" for line in regular).encode()

    assert all(
        len(next(csv.reader([line.removesuffix("\r")])) or [""]) == width
        for line in regular
    )
    assert line_format.parse(block).height == len(regular)
    for name in names:
        column = line_format.reading([name]).parse(block)
        assert column.equals(line_format.parse(block).select(name))
