"""Every error crosses process boundaries whole and is explained in the docs."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from pathlib import Path

import pytest

from millstream import errors
from millstream.errors import MillstreamError, OperatorError

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
HEADING = re.compile(r"^## `(?P<code>[a-z_.]+)`$", re.MULTILINE)


def family(kind: type[MillstreamError]) -> list[type[MillstreamError]]:
    """Return the class and everything derived from it in `millstream.errors`."""
    derived = [
        found
        for child in kind.__subclasses__()
        if child.__module__ == errors.__name__
        for found in family(child)
    ]
    return [kind, *derived]


ERRORS = family(MillstreamError)


def explanations() -> dict[str, str]:
    """Return the text under each code in the reference."""
    _, *parts = HEADING.split(REFERENCE.read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_error_survives_pickle(kind: type[MillstreamError], protocol: int) -> None:
    """Spark carries errors from the workers to the driver."""
    error = kind("worker 3 went silent for 10 s; look at its log")
    error.add_note("seen at epoch 7")

    copy = pickle.loads(pickle.dumps(error, protocol))

    assert type(copy) is kind
    assert copy.args == error.args
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.__notes__ == ["seen at epoch 7"]


def test_operator_error_keeps_what_it_says_about_the_record() -> None:
    """The driver can still name operator, line and record after the crossing."""
    error = OperatorError(
        "`map` raised ValueError",
        operator="parse",
        location="job.py:14",
        position="readings.csv at byte 1024",
        details="Traceback ...",
    )

    copy = pickle.loads(pickle.dumps(error))

    assert copy.operator == "parse"
    assert copy.location == "job.py:14"
    assert copy.position == "readings.csv at byte 1024"
    assert copy.details == "Traceback ..."


def test_every_error_is_exported() -> None:
    """An error that users meet is one that they can catch by name."""
    warnings = {"LostChangesWarning", "UnboundedStateWarning"}
    assert {kind.__name__ for kind in ERRORS} | warnings == set(errors.__all__)


def test_code_belongs_to_one_error() -> None:
    """A class that forgets its own code would inherit that of its parent."""
    uses = Counter(kind.code for kind in ERRORS)
    assert [code for code, count in uses.items() if count > 1] == []


def test_reference_explains_exactly_the_codes_that_exist() -> None:
    """Neither an error without an explanation, nor one that is no more."""
    assert set(explanations()) == {kind.code for kind in ERRORS}


@pytest.mark.parametrize("kind", ERRORS)
def test_explanation_names_the_class_and_what_to_do(
    kind: type[MillstreamError],
) -> None:
    """Each entry leads from the code to the class and on to the fix."""
    text = explanations().get(kind.code, "")
    assert f"`{kind.__name__}`" in text
    assert "**What to do:**" in text
