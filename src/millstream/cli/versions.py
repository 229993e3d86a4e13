"""Versions of what a bug report should name, without importing any of it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import millstream

__all__ = ["versions"]

_PACKAGES = ("pyspark", "polars", "pyarrow")


def versions() -> dict[str, str]:
    """Return name and version of Millstream, Python and the packages below it."""
    found = {name: _installed(name) for name in _PACKAGES}
    return {
        "millstream": millstream.__version__,
        "python": platform.python_version(),
        **found,
    }


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
