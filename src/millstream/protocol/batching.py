"""How many rows a source should put into a batch of columns.

A batch costs something whatever is in it, so larger ones give more rows a second - up to
where the gain is lost in what no longer fits into the processor's cache.  And whoever
waits for the rows of a batch, or behind it, waits for all of them.  So the size climbs
while that pays and a batch takes no longer than the bound allows, and comes down at once
when it does.

Sizes change by factors of two.  After every few batches the rate is compared with that of
the size before: a better one is kept and the next one tried, otherwise the size goes back,
the other direction is tried, and then it rests for a while.

Pure: times arrive as arguments.  Nothing here knows sources or what is in a batch.
"""

from __future__ import annotations

__all__ = ["BatchSize"]

TRIAL_BATCHES = 3
"""Batches over which a rate is taken."""

REST_BATCHES = 128
"""Batches before another size is tried again."""

WORTH = 1.05
"""How many times faster another size must be to be kept."""


class BatchSize:
    """The number of rows of the next batch.

    Parameters
    ----------
    start
        The size to begin with.
    least, most
        The bounds of the size; `start` where that is outside.
    bound_ns
        How long a batch may take; None leaves the size alone.

    Examples
    --------
    >>> size = BatchSize(4096, least=1024, most=131_072, bound_ns=50_000_000)
    >>> size.note(4096, 200_000_000)
    >>> size.rows
    1024
    """

    def __init__(
        self, start: int, *, least: int, most: int, bound_ns: int | None
    ) -> None:
        assert min(start, least, most) > 0, f"no batch has {(start, least, most)} rows"
        self.rows = start
        self._least = min(least, start)
        self._most = max(most, start)
        self._bound_ns = bound_ns
        self._is_growing = True
        self._is_second_try = False
        #: Rows per nanosecond of the size before, if this one is on trial.
        self._rate_before: float | None = None
        self._rest = 0
        self._forget()

    def validate(self) -> None:
        """Assert what holds of every size; called by every test."""
        assert self._least <= self.rows <= self._most, (
            f"{self.rows} rows are not within {self._least} and {self._most}"
        )
        assert 0 <= self._noted < TRIAL_BATCHES, f"{self._noted} batches are not judged"
        assert self._is_growing != self._is_second_try, (
            "the first try is to grow, the second to shrink"
        )
        assert self._bound_ns is not None or self._rate_before is None, (
            "a size that is left alone is on trial"
        )

    def note(self, rows: int, elapsed_ns: int) -> None:
        """Learn how long a batch took from being read to being done."""
        if self._bound_ns is None or rows <= 0 or elapsed_ns <= 0:
            return
        if elapsed_ns > self._bound_ns:
            self._shrink(rows, elapsed_ns)
        elif rows >= self.rows // 2:  # a smaller one says nothing about this size
            self._noted_rows += rows
            self._noted_ns += elapsed_ns
            self._noted += 1
            if self._noted >= TRIAL_BATCHES:
                self._judge()

    def _shrink(self, rows: int, elapsed_ns: int) -> None:
        """Come down to what would have taken half of the time that is allowed."""
        assert self._bound_ns is not None
        assert elapsed_ns > self._bound_ns, f"{rows} rows in {elapsed_ns} ns are fine"
        fitting = rows * self._bound_ns // (2 * elapsed_ns)
        while self.rows > max(fitting, self._least):
            self.rows = max(self.rows // 2, self._least)
        self._settle()

    def _judge(self) -> None:
        """Compare the rate of this size with that of the one before."""
        assert self._noted_ns > 0, f"{self._noted} batches took no time"
        assert self._noted == TRIAL_BATCHES, f"{self._noted} batches are judged"
        rate = self._noted_rows / self._noted_ns
        if self._rate_before is None:
            self._rest -= self._noted
            if self._rest <= 0:
                self._try_another(rate)
        elif rate >= self._rate_before * WORTH:
            self._try_another(rate)
        else:
            self._go_back()
        self._forget()

    def _try_another(self, rate: float) -> None:
        """Go one step on in the present direction, if there is one."""
        assert self._bound_ns is not None
        doubled_ns = 2 * self._noted_ns / self._noted
        can_grow = 2 * self.rows <= self._most and doubled_ns < self._bound_ns
        can_shrink = self.rows // 2 >= self._least
        if can_grow if self._is_growing else can_shrink:
            self._rate_before = rate
            self.rows = 2 * self.rows if self._is_growing else self.rows // 2
        elif self._is_growing and not self._is_second_try and can_shrink:
            self._is_growing, self._is_second_try = False, True
            self._rate_before = rate
            self.rows //= 2
        else:
            self._settle()
        assert self._least <= self.rows <= self._most, f"it tries {self.rows}"

    def _go_back(self) -> None:
        """Leave a size that was not worth it; try the other direction once."""
        assert self._rate_before is not None, f"{self.rows} rows are not on trial"
        self.rows = self.rows // 2 if self._is_growing else 2 * self.rows
        assert self._least <= self.rows <= self._most, f"it went back to {self.rows}"
        if self._is_second_try or not self._is_growing:
            self._settle()
        else:
            self._is_growing, self._is_second_try = False, True
            self._rate_before, self._rest = None, 0

    def _settle(self) -> None:
        assert self._least <= self.rows <= self._most, f"it settles at {self.rows}"
        self._is_growing, self._is_second_try = True, False
        self._rate_before, self._rest = None, REST_BATCHES
        self._forget()

    def _forget(self) -> None:
        self._noted = self._noted_rows = self._noted_ns = 0
