"""Whether a series of measurements rises: its slope, robustly, and how sure that is.

The slope is the median of the slopes between all pairs of points (Theil and Sen); its
bounds come from how many of these would lie below it by chance.  A few wild points, as
after a kill, change neither much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Allowance", "Slope", "Verdict", "judged", "slope_of"]

_Z = 1.96
"""For bounds that hold in 95 of 100 cases."""
POINTS_MIN = 8


@dataclass(frozen=True, slots=True)
class Slope:
    """By how much a series rises in a second."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """By how much a figure may rise in the time that was measured.

    Attributes
    ----------
    amount
        In the unit of the figure.
    share
        Of its usual value, if that is more.
    """

    amount: float
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said about one figure of one job."""

    job: str
    figure: str
    usual: float
    rise: float
    rise_low: float
    allowed: float

    @property
    def is_rising(self) -> bool:
        """Whether it certainly rises by more than is allowed."""
        return self.rise_low > self.allowed

    def __str__(self) -> str:
        word = "RISES" if self.is_rising else "ok"
        return (
            f"{self.job:8} {self.figure:14} usual {self.usual:10.1f}  rise "
            f"{self.rise:+10.1f} (at least {self.rise_low:+10.1f}, allowed "
            f"{self.allowed:8.1f})  {word}"
        )


def slope_of(points: list[tuple[float, float]]) -> Slope:
    """Return the slope of points of time and value.

    Examples
    --------
    >>> slope_of([(second, 2.0 * second) for second in range(10)]).middle
    2.0
    """
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, earlier in enumerate(points)
        for later in points[place + 1 :]
        if later[0] > earlier[0]
    )
    if not slopes:
        return Slope(-math.inf, 0.0, math.inf)
    count = len(points)
    spread = _Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    below = max(0, int((len(slopes) - spread) / 2))
    above = min(len(slopes) - 1, len(slopes) - 1 - below)
    return Slope(slopes[below], slopes[len(slopes) // 2], slopes[above])


def judged(
    job: str, figure: str, points: list[tuple[float, float]], allowance: Allowance
) -> Verdict | None:
    """Say whether a figure rises; None if there are too few points to tell."""
    if len(points) < POINTS_MIN:
        return None
    slope, span = slope_of(points), points[-1][0] - points[0][0]
    values = sorted(value for _, value in points)
    usual = values[len(values) // 2]
    allowed = max(allowance.amount, allowance.share * usual)
    return Verdict(job, figure, usual, slope.middle * span, slope.low * span, allowed)
