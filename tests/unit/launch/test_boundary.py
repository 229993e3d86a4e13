"""What leaves `run`, `wait` and `result` can be caught as a `MillstreamError`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import millstream as ms
from millstream import errors
from millstream.connectors.iterable import IterableSource
from millstream.errors import InternalError, OperatorError
from millstream.runtime.coordinator import Coordinator

CAUGHT_INSIDE = {
    "_KeptHereError",  # becomes a `UsageError` that names what was captured
    "_Taken",  # ends the program that the command line reads a flow from
    "ConnectionLostError",  # becomes the loss of a peer
    "LineBrokenError",  # becomes the loss of a peer
    "MalformedError",  # becomes a bad row, or the cause of an `OperatorError`
    "PeerAbsentError",  # becomes the loss of a peer
    "Refused",  # becomes a `UsageError` of the verb
    "TaskFailedError",  # becomes what the worker reports
    "UnshreddableError",  # such a value is pickled
}
FOR_TESTS = {"SimulationFailedError"}  # an `AssertionError`, as test runners want it
MODULES_OF_PROGRAMS = {"millstream.__main__", "millstream.launch.spark"}


def own_errors() -> set[type[BaseException]]:
    """Return every exception that the package defines."""
    found: set[type[BaseException]] = set()
    for info in pkgutil.walk_packages(ms.__path__, "millstream."):
        if info.name in MODULES_OF_PROGRAMS or "kernels" in info.name:
            continue
        module = importlib.import_module(info.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, BaseException) and kind.__module__ == info.name:
                found.add(kind)
    return found


def test_every_exception_is_public_or_known_to_stay_inside() -> None:
    """Who adds one thinks about where it ends."""
    private = {
        kind.__name__ for kind in own_errors() if kind.__module__ != errors.__name__
    }

    assert private == CAUGHT_INSIDE | FOR_TESTS


class Unreadable(IterableSource[int]):
    """A source that cannot be cut."""

    def splits(self, task_count: int) -> Any:
        raise LookupError(task_count)


class Unwritable(ms.Sink[int]):
    """A sink that cannot be prepared."""

    def prepare(self, job: str, *, is_resumed: bool = False) -> None:
        raise ConnectionError

    def open(self, job: str, task: int) -> Any:
        raise NotImplementedError


class Uncommittable(Unwritable):
    """A sink that takes rows and cannot show them."""

    def prepare(self, job: str, *, is_resumed: bool = False) -> None:
        pass

    def open(self, job: str, task: int) -> ms.SinkWriter[int]:
        return _Writer()

    def commit(self, job: str, epoch: int, transactions: list[Any]) -> None:
        raise ConnectionError


class _Writer(ms.SinkWriter[int]):
    def write(self, rows: list[int]) -> None:
        pass

    def seal(self, epoch: int) -> Any:
        return epoch


def test_an_error_of_a_source_is_the_cause_of_one_that_names_it() -> None:
    """The driver asks sources before any worker is there."""
    flow = ms.Flow("source")
    flow.read(Unreadable([1]), name="table").for_each(print)

    with pytest.raises(
        OperatorError, match=r"'table' at .* LookupError when"
    ) as caught:
        flow.run(on="local")

    assert isinstance(caught.value.__cause__, LookupError)
    assert caught.value.operator == "table"


@pytest.mark.parametrize("sink", [Unwritable(), Uncommittable()])
def test_an_error_of_a_sink_is_said_by_name(sink: ms.Sink[int]) -> None:
    """The driver prepares and commits."""
    flow = ms.Flow("sink")
    flow.from_iterable([1]).write(sink, name="rows")

    with pytest.raises(ms.MillstreamError, match="'rows' raised ConnectionError when"):
        flow.run(on="local")


def test_a_failure_of_the_engine_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Users catch `MillstreamError`, and still see where it happened."""

    def fail(self: Coordinator, *arguments: Any, **options: Any) -> None:
        raise KeyError(self)

    flow = ms.Flow("bug")
    flow.from_iterable([1]).for_each(print)
    monkeypatch.setattr(Coordinator, "step", fail)

    with pytest.raises(InternalError, match=r"KeyError: .*; this is a bug") as caught:
        flow.run(on="local")

    assert isinstance(caught.value.__cause__, KeyError)
