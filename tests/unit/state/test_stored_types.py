"""The names in stored values: they stay, and nothing can be named but what has one."""

from __future__ import annotations

import os
import pickle
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import pytest

from millstream.errors import SnapshotError
from millstream.plan.windows import CountWindows, Window
from millstream.state.plain import OBJECTS, PLAIN, decode, encode
from millstream.state.stored_types import NAMED, RECORDS, SINGLE, stored_object

SINCE_4 = {
    "behind": "real watermark",
    "bad row": "file line offset text cause",
    "byte range": "path start end size",
    "dead letter": "record cause operator position",
    "decision": "number is_over value",
    "frame byte range": "path start end size",
    "held parts": "pieces age_ns is_blank",
    "late row": "key value timestamp",
    "panes and behind": "panes behind",
    "piece": "home folder name size",
    "rounds": "round done history",
    "row group": "path number rows",
    "sealed parts": "generation is_first moves spent held",
    "sealed rows": "name generation target rows pieces",
    "split": "name payload",
    "timer": "time kind",
    "window": "start end",
}
"""What directories of format 4 have in them; entries are added and never changed."""


def test_no_array_is_made_of_addresses() -> None:
    """Bytes that were taken for references would be whatever their writer likes."""
    array, number = stored_object("array"), stored_object("number")
    with pytest.raises(SnapshotError, match="elements of type object"):
        array("O", (1,), "C", b"A" * 8)
    with pytest.raises(SnapshotError, match="elements of type"):
        number([("a", "O")], b"A" * 8)


class Evil:
    """What somebody may have put into a stored value."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


def test_names_and_fields_are_what_directories_have() -> None:
    """A field may be added at the end; nothing else can be changed for ever."""
    now = {name: " ".join(names) for name, (_, names) in RECORDS.items()}
    for name, known in SINCE_4.items():
        assert now[name].startswith(known)


@pytest.mark.parametrize("name", NAMED)
def test_name_stands_for_something(name: str) -> None:
    """A class that was moved could not be read."""
    found = stored_object(name)
    if name not in SINGLE and isinstance(found, type):
        path = f"{found.__module__}:{found.__qualname__}"
        assert path == NAMED[name]


@pytest.mark.parametrize("name", SINGLE)
def test_single_object_stays_one(name: str) -> None:
    """Whoever meets it compares by identity."""
    value = stored_object(name)
    assert f"{type(value).__module__}:{type(value).__qualname__}" == ":".join(
        (NAMED[name].partition(":")[0], SINGLE[name][1])
    )
    assert decode(encode([value]))[0] is value


@pytest.mark.parametrize("name", RECORDS)
def test_record_is_stored_with_all_its_fields(name: str) -> None:
    """One that is left out would be lost without a word."""
    kind, listed = stored_object(name), RECORDS[name][1]
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
        needed = [
            f.name for f in fields(kind) if f.default is f.default_factory is MISSING
        ]
    else:
        names = getattr(kind, "_fields", listed)
        needed = [
            each for each in names if each not in getattr(kind, "_field_defaults", {})
        ]
    assert listed == names
    assert listed[: len(needed)] == tuple(needed)


def test_plain_value_can_name_nothing_else() -> None:
    """What Millstream itself stores runs no code, whoever wrote it."""
    evil = pickle.dumps(Evil(), 5)
    with pytest.raises(
        SnapshotError, match=r"refers to \w+\.system, which a plain one"
    ):
        decode(PLAIN + evil)


def test_parts_of_millstream_have_no_paths_in_values_with_objects() -> None:
    """There is one name for each, which stays where it moves to."""
    with pytest.raises(
        SnapshotError, match=r"refers to millstream\.plan\.windows\.Window"
    ):
        decode(OBJECTS + pickle.dumps(Window(1, 2), 5))


def test_part_of_millstream_without_a_name_is_not_stored() -> None:
    """A path of ours in a directory would keep us from moving what is there."""
    with pytest.raises(
        TypeError, match=r"windows\.CountWindows of Millstream is not for"
    ):
        encode([CountWindows(1, 1, drops_incomplete=True)])


def test_unknown_name_is_refused_by_name() -> None:
    """A newer release may have stored it."""
    data = encode([Window(1, 2)]).replace(b"window", b"widget")
    with pytest.raises(
        SnapshotError, match="refers to 'widget', which this Millstream"
    ):
        decode(data)


@pytest.mark.parametrize("data", [b"", b"\x80\x05N.", b"x"])
def test_unknown_form_is_refused_by_name(data: bytes) -> None:
    """Such as a pickle of an older release."""
    with pytest.raises(SnapshotError, match="a stored value begins with b'"):
        decode(data)
