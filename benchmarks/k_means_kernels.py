"""What a round of k-means does to points: with Numba, and with plain NumPy.

A module of its own, which workers import: what Numba compiled is then found in its cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["Centroids", "moved", "sums_by_numpy", "sums_of"]

Centroids = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@njit(cache=True)
def sums_of(x: Any, y: Any, centroids: Any) -> Any:
    """Return the sum and the number of the points that are nearest to each centroid."""
    count = len(centroids)
    sums, counts = np.zeros((count, 2)), np.zeros(count, dtype=np.int64)
    for i in range(len(x)):
        best, nearest = np.inf, 0
        for c in range(count):
            dx, dy = x[i] - centroids[c, 0], y[i] - centroids[c, 1]
            distance = dx * dx + dy * dy
            if distance < best:
                best, nearest = distance, c
        sums[nearest, 0] += x[i]
        sums[nearest, 1] += y[i]
        counts[nearest] += 1
    return sums, counts


def sums_by_numpy(x: Any, y: Any, centroids: Centroids) -> tuple[Any, Any]:
    """Return the same with whole arrays, a few thousand points at a time."""
    count, sums = len(centroids), np.zeros((len(centroids), 2))
    counts = np.zeros(count, dtype=np.int64)
    for start in range(0, len(x), 4096):
        px, py = x[start : start + 4096], y[start : start + 4096]
        far = (px[:, None] - centroids[:, 0]) ** 2 + (
            py[:, None] - centroids[:, 1]
        ) ** 2
        nearest = far.argmin(axis=1)
        sums[:, 0] += np.bincount(nearest, px, count)
        sums[:, 1] += np.bincount(nearest, py, count)
        counts += np.bincount(nearest, minlength=count)
    return sums, counts


def moved(centroids: Centroids, sums: Any, counts: Any) -> Centroids:
    """Return the means of the points; a centroid without points stays."""
    has_points = counts > 0
    means = centroids.copy()
    means[has_points] = sums[has_points] / counts[has_points, None]
    return means
