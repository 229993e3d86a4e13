"""The batch size climbs while that pays, and never far above its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.batching import REST_BATCHES, BatchSize

LEAST, MOST = 1024, 131_072
BOUND_NS = 50_000_000
STARTS = st.sampled_from([1024, 8192, 65_536, 131_072])


def ran(size: BatchSize, fixed_ns: int, row_ns: int, batches: int) -> None:
    """Run batches that take a fixed time and a time per row."""
    for _ in range(batches):
        size.note(size.rows, fixed_ns + row_ns * size.rows)
        size.validate()


@given(
    start=st.integers(1, 300_000),
    batches=st.lists(
        st.tuples(st.integers(0, 300_000), st.integers(0, 10**9)), max_size=60
    ),
)
def test_the_size_stays_within_its_bounds(
    start: int, batches: list[tuple[int, int]]
) -> None:
    """Whatever times are told, between the least and the most, or the start."""
    size = BatchSize(start, least=LEAST, most=MOST, bound_ns=BOUND_NS)
    for rows, elapsed_ns in batches:
        size.note(rows, elapsed_ns)
        size.validate()
        assert min(LEAST, start) <= size.rows <= max(MOST, start)


@given(start=STARTS, fixed_ns=st.integers(0, 10_000_000), row_ns=st.integers(1, 20_000))
def test_batches_come_to_take_no_longer_than_the_bound(
    start: int, fixed_ns: int, row_ns: int
) -> None:
    """Unless even the smallest batch does."""
    size = BatchSize(start, least=LEAST, most=MOST, bound_ns=BOUND_NS)
    ran(size, fixed_ns, row_ns, 10)

    for _ in range(3 * REST_BATCHES):
        took_ns = fixed_ns + row_ns * size.rows
        assert took_ns <= BOUND_NS or size.rows == LEAST
        size.note(size.rows, took_ns)


@given(start=STARTS, fixed_ns=st.integers(0, 1_000_000), row_ns=st.integers(1, 100))
def test_the_rate_comes_near_the_best_one(
    start: int, fixed_ns: int, row_ns: int
) -> None:
    """Where the bound is far away, nine tenths of what the largest batches give."""
    size = BatchSize(start, least=LEAST, most=MOST, bound_ns=10**12)
    ran(size, fixed_ns, row_ns, 4 * REST_BATCHES)

    settled = [size.rows]
    for _ in range(REST_BATCHES):
        size.note(size.rows, fixed_ns + row_ns * size.rows)
        settled.append(size.rows)
    usual = max(settled, key=settled.count)
    rate = usual / (fixed_ns + row_ns * usual)
    assert rate >= 0.9 * MOST / (fixed_ns + row_ns * MOST)


def test_a_size_that_fits_the_cache_is_found() -> None:
    """Where rows are the slower the larger their batch, the size comes down."""
    size = BatchSize(65_536, least=LEAST, most=MOST, bound_ns=BOUND_NS)
    for _ in range(60):
        row_ns = 20 * max(size.rows / 16_384, 1) ** 0.5
        size.note(size.rows, 10_000 + round(row_ns * size.rows))

    assert size.rows == 16_384


def test_a_batch_far_above_the_bound_shrinks_the_next_at_once() -> None:
    """Latency does not wait for a trial to end."""
    size = BatchSize(65_536, least=LEAST, most=MOST, bound_ns=BOUND_NS)

    size.note(65_536, 8 * BOUND_NS)

    assert size.rows == 4096


def test_small_batches_say_nothing() -> None:
    """The last batch of a split is no reason to think that small ones are fast."""
    size = BatchSize(65_536, least=LEAST, most=MOST, bound_ns=BOUND_NS)
    for _ in range(20):
        size.note(100, 1000)

    assert size.rows == 65_536


def test_without_a_bound_the_size_is_left_alone() -> None:
    """A fixed buffer is one whose size somebody chose."""
    size = BatchSize(100, least=LEAST, most=MOST, bound_ns=None)
    for _ in range(50):
        size.note(100, 10)

    assert size.rows == 100
