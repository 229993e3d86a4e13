"""What `import millstream as ms` offers, and that all of it can be explained."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

import millstream as ms

PUBLIC_CLASSES = [
    ms.Flow,
    ms.Stream,
    ms.KeyedStream,
    ms.GroupedStream,
    ms.WindowedStream,
    ms.ResultHandle,
    ms.Job,
]


def test_exports_are_sorted_and_exist() -> None:
    """A name in the list that is not there would break `from millstream import *`."""
    assert ms.__all__ == sorted(ms.__all__)
    assert [name for name in ms.__all__ if not hasattr(ms, name)] == []


@pytest.mark.parametrize("name", ms.__all__)
def test_export_has_a_docstring(name: str) -> None:
    """`help(ms.name)` says something."""
    assert inspect.getdoc(getattr(ms, name))


def verbs(kind: type[Any]) -> list[tuple[str, Any]]:
    return [
        (name, member)
        for name, member in inspect.getmembers(kind)
        if inspect.isfunction(member) and not name.startswith("_")
    ]


@pytest.mark.parametrize("kind", PUBLIC_CLASSES, ids=lambda kind: kind.__name__)
def test_every_method_has_a_docstring(kind: type[Any]) -> None:
    """Inherited ones as well."""
    assert [name for name, member in verbs(kind) if not inspect.getdoc(member)] == []


@pytest.mark.parametrize(
    "kind", [ms.Stream, ms.KeyedStream, ms.GroupedStream, ms.WindowedStream]
)
def test_every_verb_has_an_example(kind: type[Any]) -> None:
    """The examples run as doctests, so they are true."""
    assert [name for name, m in verbs(kind) if ">>>" not in (m.__doc__ or "")] == []


def test_every_verb_takes_a_name() -> None:
    """Any operator can be found again in the plan and in a message."""
    nameless = {"buffered", "split", "window", "with_window"}
    for kind in (ms.Stream, ms.KeyedStream, ms.GroupedStream, ms.WindowedStream):
        for name, verb in verbs(kind):
            assert name in nameless or "name" in inspect.signature(verb).parameters


def test_nothing_of_the_inside_is_among_the_public_names() -> None:
    """What completion offers is for users: no typing, no building of plans."""
    modules = {"api", "columns", "config", "connectors", "credentials", "errors"}
    modules |= {
        "launch",
        "observe",
        "operators",
        "plan",
        "ports",
        "protocol",
        "runtime",
    }
    modules |= {"annotations", "cli", "simulation", "state", "testing", "values"}
    names = {name for name in vars(ms) if not name.startswith("_")}
    inside = {"add", "as_input", "rebuffered", "remember", "untimed", "with_value"}

    assert names - modules - set(ms.__all__) == set()
    for kind in (*PUBLIC_CLASSES, ms.Frame):
        assert inside.isdisjoint(dir(kind))


def test_import_does_not_need_spark() -> None:
    """Nobody waits for a JVM's bindings who runs locally."""
    code = (
        "import sys, millstream; "
        "sys.exit('pyspark' in sys.modules or 'py4j' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)

    assert done.returncode == 0


def test_aggregate_of_ones_own_travels() -> None:
    """It goes to the workers inside the plan."""
    aggregate = ms.Aggregate("longest", len, max, max)

    assert pickle.loads(pickle.dumps(aggregate)) == aggregate
