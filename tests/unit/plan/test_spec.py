"""Facts about a kind of operator live on its spec, and nowhere else."""

from __future__ import annotations

from importlib import import_module
from inspect import getmembers, isclass
from typing import Any

import pytest

from millstream.operators import build, frame_build
from millstream.plan.spec import Spec

MODULES = ("nodes", "time", "windows", "joins", "iteration", "frames", "frame_joins")


def kinds() -> list[type[Spec]]:
    """Return every kind of operator that the plan knows."""
    found = set()
    for name in (*MODULES, "frame_windows"):
        module = import_module(f"millstream.plan.{name}")
        found |= {
            kind
            for _, kind in getmembers(module, isclass)
            if issubclass(kind, Spec) and kind is not Spec
        }
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_kind_says_what_it_is(kind: type[Spec]) -> None:
    """A fact that is inherited or forgotten would be a wrong one for somebody."""
    assert "traits" in vars(kind)
    traits = kind.traits
    names = set(getattr(kind, "__dataclass_fields__", ()))
    assert ("function" in names) >= traits.calls_function
    assert traits.fuses is None or not traits.keeps
    assert traits.has_operator or traits.fuses is None
    describes = kind.kept_fields is not Spec.kept_fields
    assert bool(traits.keeps) >= describes


def test_every_kind_that_works_has_one_way_to_be_made() -> None:
    """Rows and frames each have one table, and no kind is in both or in neither."""
    made: dict[str, set[type[Any]]] = {
        "rows": set(build.OPERATORS),
        "frames": set(frame_build.OPERATORS),
    }
    working = [kind for kind in kinds() if kind.traits.has_operator]
    by_itself = [kind for kind in working if kind.traits.fuses != "rows"]
    on_frames = {kind for kind in by_itself if kind.traits.takes_frames}

    assert made["frames"] == on_frames
    assert made["rows"] == set(by_itself) - on_frames


def test_what_is_kept_has_a_name_of_its_own() -> None:
    """Two kinds with the same words could take each other's state for their own."""
    words = [kind.traits.keeps for kind in kinds() if kind.traits.keeps]
    assert len(words) == len(set(words))
