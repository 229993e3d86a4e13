"""Golden programs are run by their tests, not collected for doctests."""

from __future__ import annotations

collect_ignore_glob = ["programs/*"]
