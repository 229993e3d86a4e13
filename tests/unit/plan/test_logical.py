"""The logical plan: names, and flows that would do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import UsageError
from millstream.plan import nodes as specs
from millstream.plan.logical import Location, LogicalPlan, Node

if TYPE_CHECKING:
    from millstream.plan.spec import Spec


def node(number: int, name: str, spec: Spec, *inputs: int) -> Node:
    verb = type(spec).__name__.lower()
    return Node(number, name, verb, spec, inputs, Location("/home/me/job.py", number))


def test_location_shows_the_file_without_its_folder() -> None:
    """Messages stay short; the folder is the same for all of them."""
    assert str(Location("/home/me/job.py", 7)) == "job.py:7"


def test_free_name_counts_up() -> None:
    """Two maps are `map` and `map-2`."""
    plan = LogicalPlan("flow")
    names = []
    for number in range(3):
        names.append(plan.free_name("map"))
        plan.add(node(number, names[-1], specs.Merge()))

    assert names == ["map", "map-2", "map-3"]


def test_duplicate_name_is_refused_with_both_places() -> None:
    """The user sees which two operators collide."""
    plan = LogicalPlan("flow")
    plan.add(node(0, "clean", specs.Merge()))

    with pytest.raises(UsageError, match=r"merge at job.py:0 and flatten at job.py:1"):
        plan.add(node(1, "clean", specs.Flatten()))


def test_consumers_are_listed_once_per_input() -> None:
    """A stream merged with itself is read twice."""
    plan = LogicalPlan("flow")
    plan.add(node(0, "a", specs.Merge()))
    plan.add(node(1, "b", specs.Merge(), 0, 0))

    assert [n.name for n in plan.consumers(0)] == ["b", "b"]


def test_flow_that_ends_in_sinks_passes_the_check() -> None:
    """Every output is read by somebody."""
    plan = LogicalPlan("flow")
    plan.add(node(0, "a", specs.Merge()))
    plan.add(node(1, "b", specs.Collect(), 0))

    plan.check()

    assert [n.is_sink for n in plan.nodes] == [False, True]


def test_empty_plan_is_refused() -> None:
    """With a hint how to begin."""
    with pytest.raises(UsageError, match="flow 'flow' is empty; begin with a source"):
        LogicalPlan("flow").check()
