"""How much memory this process has."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["resident_bytes"]

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident set of this process; 0 where the system does not tell.

    Examples
    --------
    >>> resident_bytes() >= 0
    True
    """
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
