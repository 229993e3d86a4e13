"""KeyIndex: dense slots in the order of appearance, by either engine."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from millstream.columns.index import KeyIndex
from millstream.columns.kernels import loading
from millstream.columns.kernels.native import STEP_MIN, WordKeys
from millstream.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

needs_numba = pytest.mark.skipif(
    not loading.is_installed(), reason="Numba is not installed"
)
both_engines = pytest.mark.parametrize(
    "engine", ["polars", pytest.param("native", marks=needs_numba)]
)


def words(*values: str | None) -> pl.DataFrame:
    return pl.DataFrame({"word": values}, schema={"word": pl.String})


def numbers(values: NDArray[np.int64]) -> pl.DataFrame:
    return pl.DataFrame({"number": values})


@both_engines
def test_a_new_key_gets_the_next_slot(engine: loading.Engine) -> None:
    """Slots count up in the order of first appearance, across batches."""
    index = KeyIndex({"word": pl.String()}, engine=engine)

    assert index.slots(words("b", "a", "b")).tolist() == [0, 1, 0]
    assert index.slots(words("c", "a", None, "d", None)).tolist() == [2, 1, 3, 4, 3]
    assert len(index) == 5
    assert_frame_equal(index.keys(), words("b", "a", "c", None, "d"))


@both_engines
def test_keys_of_some_slots_come_in_the_order_asked_for(engine: loading.Engine) -> None:
    """A gather, as a delta of state needs it, with repetitions and in any order."""
    index = KeyIndex({"word": pl.String()}, engine=engine)
    index.slots(words("short", "one that is longer than a view", None))

    found = index.keys(np.array([2, 1, 1, 0]))

    long = "one that is longer than a view"
    assert_frame_equal(found, words(None, long, long, "short"))


@both_engines
def test_slots_that_do_not_exist_are_refused(engine: loading.Engine) -> None:
    """Reading beyond the keys would read somebody else's memory."""
    index = KeyIndex({"word": pl.String()}, engine=engine)
    index.slots(words("a", "b"))

    for slots in ([2], [-1]):
        with pytest.raises(IndexError, match="there are 2 keys"):
            index.keys(np.array(slots))


@both_engines
def test_an_empty_batch_changes_nothing(engine: loading.Engine) -> None:
    """It has no slots, and an index without keys has a typed frame of none."""
    schema = {"word": pl.String(), "number": pl.Int32()}
    index = KeyIndex(schema, engine=engine)
    empty = pl.DataFrame(schema=schema)

    assert index.slots(empty).tolist() == []
    assert_frame_equal(index.keys(), empty)
    assert len(index) == 0


@both_engines
@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pl.Binary(), [b"", b"\0", b"\0\0", b"\xff" * 20, None]),
        (pl.Boolean(), [True, None, False]),
        (pl.Int8(), [-128, 127, None, 0]),
        (pl.UInt64(), [2**64 - 1, 0, None, 2**63]),
        (pl.Int128(), [2**100, -(2**100), None, 0]),
        (pl.Decimal(20, 2), [Decimal("1.50"), None, Decimal("-0.01")]),
        (pl.Date(), [date(1, 1, 1), date(9999, 12, 31), None]),
        (pl.Datetime("ms", "Asia/Tokyo"), [datetime(2024, 1, 1, tzinfo=UTC), None]),
        (pl.Duration("ns"), [1, None, -1]),
        (pl.Time(), [0, 86_399_999_999_999, None]),
        (pl.Categorical(), ["b", None, "a", "a category longer than a view"]),
        (pl.Enum(["x", "y"]), ["y", None, "x"]),
        (pl.Float32(), [1.5, None, float("inf"), 0.0]),
        (pl.Null(), [None]),
    ],
    ids=str,
)
def test_keys_come_back_with_their_type(
    engine: loading.Engine, dtype: pl.DataType, values: list[Any]
) -> None:
    """Whatever a type is encoded as, its values and its parameters survive."""
    frame = pl.DataFrame({"key": pl.Series(values, strict=False).cast(dtype)})
    index = KeyIndex({"key": dtype}, engine=engine)

    expected = list(range(len(values)))
    assert index.slots(frame).tolist() == expected
    assert index.slots(frame.reverse()).tolist() == expected[::-1]
    assert_frame_equal(index.keys(), frame)


@both_engines
def test_zero_has_no_sign_and_nan_is_one_key(engine: loading.Engine) -> None:
    """Grouping by a float gives the groups of Polars."""
    other_nan = np.array([0x7FF8_0000_0000_0001], dtype=np.uint64).view(np.float64)
    values = np.concatenate([[0.0, -0.0, np.nan, -np.nan], other_nan])
    index = KeyIndex({"key": pl.Float64()}, engine=engine)

    assert index.slots(pl.DataFrame({"key": values})).tolist() == [0, 0, 1, 1, 1]
    assert str(index.keys()["key"].to_list()) == "[0.0, nan]"


@both_engines
def test_several_columns_are_one_key(engine: loading.Engine) -> None:
    """Neither values that swap columns nor nulls run into each other."""
    schema = {"a": pl.String(), "b": pl.String(), "c": pl.Int64()}
    rows = [
        ("x", "y", 1),
        ("y", "x", 1),
        ("x", None, 1),
        (None, "x", 1),
        ("x", "y", None),
        ("xy", "", 1),
    ]
    frame = pl.DataFrame([*rows, *rows], schema=schema, orient="row")
    index = KeyIndex(schema, engine=engine)

    assert index.slots(frame).tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert index.keys().rows() == rows


@both_engines
def test_strings_that_share_length_and_beginning_are_told_apart(
    engine: loading.Engine,
) -> None:
    """A view shows only four bytes of a long string."""
    same = [f"the same beginning, {number:06}" for number in range(500)]
    index = KeyIndex({"word": pl.String()}, engine=engine)

    assert index.slots(words(*same)).tolist() == list(range(500))
    assert index.slots(words(*same[::-1])).tolist() == list(range(500))[::-1]


@needs_numba
@pytest.mark.parametrize("length", [12, 30])
def test_growing_tables_lose_no_key(length: int) -> None:
    """Old and new keys are found in every step of every growth.

    Of 300,000 keys about ten pairs share the 32 bits of the hash that a table keeps;
    all share their length and first bytes, so only a full comparison tells them apart.
    """
    index = KeyIndex({"word": pl.String()}, engine="native")
    rng = np.random.default_rng(7)
    known = 0
    while known < 300_000:
        fresh = np.arange(known, known + 15_000)
        known += 15_000
        asked = np.concatenate([fresh, rng.integers(0, known, 2_000)])
        texts = pl.Series("word", asked).cast(pl.String).str.pad_start(length, "-")
        assert np.array_equal(index.slots(texts.to_frame()), asked)
    assert len(index) == known
    assert index.keys()["word"].str.strip_chars("-").cast(pl.Int64).to_list() == list(
        range(known)
    )


@needs_numba
def test_no_batch_pays_for_the_growth_of_the_whole_index() -> None:
    """What one call copies or zeroes depends on its rows, however many keys there are."""
    kernels = loading.chosen("index", "native")
    assert kernels is not None
    keys, rows, moved = WordKeys(kernels), 1024, [0]
    for start in range(0, 2_000_000, rows):
        keys.slots(np.arange(start, start + rows, dtype=np.uint64))
        moved.append(keys.moved)

    steps = np.diff(moved)
    assert steps.sum() >= 2 * len(keys), "tables did grow"
    assert steps.max() <= 3 * STEP_MIN + 36 * rows


@needs_numba
def test_numbers_whose_hashes_collide_are_told_apart() -> None:
    """Among so many, about ten pairs share the 32 bits that a table keeps."""
    index = KeyIndex({"number": pl.Int64()}, engine="native")
    values = np.arange(300_000) * 1_000_003

    assert np.array_equal(index.slots(numbers(values)), np.arange(300_000))
    assert np.array_equal(index.keys()["number"].to_numpy(), values)


@needs_numba
def test_a_string_larger_than_the_arena_finds_room() -> None:
    """A buffer is made for it alone."""
    huge = ["x" * 40_000_000, "y" * 70_000, "x" * 40_000_001]
    index = KeyIndex({"word": pl.String()}, engine="native")

    assert index.slots(words(*huge, *huge)).tolist() == [0, 1, 2, 0, 1, 2]
    assert index.keys()["word"].to_list() == huge


@needs_numba
def test_changing_engines_midway_keeps_every_slot() -> None:
    """Known keys are handed over in steps, while new ones keep coming."""
    index = KeyIndex({"number": pl.Int64()}, engine="polars")
    first = np.arange(150_000) * 7
    assert np.array_equal(index.slots(numbers(first)), np.arange(150_000))

    index.prefer_native()
    changes = []
    for step in range(6):
        fresh = np.arange(150_000 + 10 * step, 150_010 + 10 * step)
        assert np.array_equal(index.slots(numbers(fresh * 7)), fresh)
        changes.append(index.is_native)

    assert changes == [False, False, True, True, True, True]
    assert np.array_equal(index.slots(numbers(first)), np.arange(150_000))
    assert index.keys()["number"].to_list() == [7 * n for n in range(150_060)]


@needs_numba
def test_an_index_takes_bytes_in_proportion_to_its_keys() -> None:
    """A view, and a table that is at least five sixteenths full."""
    index = KeyIndex({"number": pl.Int64()}, engine="native")
    index.slots(numbers(np.arange(100_000)))

    assert 8 + 8 / 0.625 <= index.nbytes / 100_000 <= 8 + 1.5 * 8 / 0.3125


def run(program: str) -> str:
    """Run a program in a fresh interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_without_numba_the_polars_engine_serves_for_good() -> None:
    """It is an optional dependency; only who insists on it is told."""
    printed = run(
        "import sys; sys.modules['numba'] = None\n"
        "import polars as pl\n"
        "from millstream.columns.index import KeyIndex\n"
        "index = KeyIndex({'a': pl.Int64()})\n"
        "frame = pl.DataFrame({'a': [5, 5, 6]})\n"
        "print(index.slots(frame).tolist(), index.slots(frame).tolist())\n"
        "print(index.is_native)\n"
        "try: KeyIndex({'a': pl.Int64()}, engine='native')\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    assert printed.splitlines() == ["[0, 0, 1] [0, 0, 1]", "False", "UsageError"]


def test_a_program_may_end_while_kernels_are_being_compiled() -> None:
    """It waits for the one at work and leaves no trace."""
    printed = run(
        "import polars as pl\n"
        "from millstream.columns.index import KeyIndex\n"
        "index = KeyIndex({'a': pl.Int64()})\n"
        "print(index.slots(pl.DataFrame({'a': [5, 5]})).tolist())\n"
    )
    assert printed == "[0, 0]\n"


def test_batches_of_another_type_are_refused() -> None:
    """An index of strings cannot know what a number's slot would be."""
    index = KeyIndex({"word": pl.String()}, engine="polars")

    with pytest.raises(TypeError, match="`word` is Int64, expected String"):
        index.slots(pl.DataFrame({"word": [1]}))
    with pytest.raises(TypeError, match="`word` is missing"):
        index.slots(pl.DataFrame({"other": ["a"]}))


@pytest.mark.parametrize(
    "dtype", [pl.List(pl.Int64()), pl.Struct({"a": pl.Int64()}), pl.Object()], ids=str
)
def test_types_that_cannot_be_keys_are_refused(dtype: pl.DataType) -> None:
    """The mistake is named before any data has come."""
    with pytest.raises(UsageError, match=r"`key` of type .* cannot be a key"):
        KeyIndex({"key": dtype})


def test_an_index_without_columns_is_refused() -> None:
    """There would be one key, the empty one."""
    with pytest.raises(UsageError, match="at least one key column"):
        KeyIndex({})
