"""Where jobs run whose workers are killed."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=["processes", pytest.param("spark", marks=pytest.mark.spark)])
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Say where to run: two plain processes, or two tasks of a session."""
    if request.param == "spark":
        return {"spark": request.getfixturevalue("spark"), "workers": 2}
    return {"on": "processes", "workers": 2}
