"""Manifests: verified before they are read, and read strictly."""

from __future__ import annotations

import hmac
import struct
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from tests.support.snapshots import KEY, Driver, MemoryFiles

from millstream.errors import SnapshotError
from millstream.protocol.handshake import derive_key
from millstream.state import manifest as module
from millstream.state.manifest import (
    FORMAT,
    FileRef,
    Manifest,
    decoded_manifest,
    encoded_manifest,
)
from millstream.state.store import SnapshotStore

DIRECTORY = bytes(range(16))
NAME = "epochs/00000001/run-1-0-0-1.state"
REF = FileRef(NAME, 5, "0" * 64, ("count",), True, 1, 0, 0, 0)  # noqa: FBT003


def some_manifest() -> Manifest:
    driver = Driver(SnapshotStore(MemoryFiles(), KEY, run="run"), "run")
    driver.epoch = driver.claim = 1
    return replace(
        driver.manifest([REF]),
        splits=replace(REF, name="epochs/00000000/run-splits.state"),
        results=(replace(REF, name="epochs/00000001/run-results.state"),),
    )


def decoded(data: bytes, key: bytes = KEY) -> Manifest:
    """Return what bytes say in the directory that they were written for."""
    return decoded_manifest(data, key, lambda: DIRECTORY)


def signed(
    body: bytes, *, version: int = FORMAT, directory: bytes = DIRECTORY
) -> bytes:
    """Return bytes that only somebody with the key can make."""
    body = directory + body
    data = struct.pack(">4sHQ", b"MSMF", version, len(body)) + body
    return data + hmac.digest(derive_key(KEY, b"manifest"), data, "sha256")


def changed(**changes: Any) -> bytes:
    """Return a signed manifest with fields that are not as they should be."""
    plain = msgpack.unpackb(module._packed(some_manifest()))
    return signed(msgpack.packb(plain | changes))


def a_file(**changes: Any) -> list[list[Any]]:
    values = {field: getattr(REF, field) for field in FileRef.__slots__} | changes
    return [list(values.values())]


def test_manifest_comes_back_as_it_was() -> None:
    """With every field."""
    manifest = some_manifest()
    assert decoded(encoded_manifest(manifest, KEY, DIRECTORY)) == manifest


def test_manifest_holds_names_of_files_that_are_no_text() -> None:
    """Python has lone surrogates there; a split is named after its file."""
    manifest = replace(some_manifest(), offsets={"read": {"b\udcff.txt": (3, False)}})
    assert decoded(encoded_manifest(manifest, KEY, DIRECTORY)) == manifest


def test_manifest_has_one_form() -> None:
    """The order in which splits were noted does not show."""
    manifest = some_manifest()
    offsets = {"read": dict(reversed(manifest.offsets["read"].items()))}
    other = replace(manifest, offsets=offsets)
    assert encoded_manifest(other, KEY, DIRECTORY) == encoded_manifest(
        manifest, KEY, DIRECTORY
    )


def test_manifest_of_another_key_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes of strangers reach no parser."""
    data = encoded_manifest(some_manifest(), KEY, DIRECTORY)
    parsed: list[bytes] = []
    monkeypatch.setattr(module, "_unpacked", parsed.append)
    for spot in range(len(data)):
        flipped = data[:spot] + bytes([data[spot] ^ 1]) + data[spot + 1 :]
        with pytest.raises(SnapshotError):
            decoded(flipped)
    with pytest.raises(SnapshotError, match="another key"):
        decoded(data, KEY[::-1])
    assert parsed == []


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "epochs/../key",
        "epochs/00000001/../../key",
        "epochs/00000001/.hidden",
        "epochs/00000001/a/b",
        "epochs/1/a",
        "epochs/00000001/a\n",
        "key",
        "",
    ],
)
def test_name_that_is_none_of_a_state_file_is_refused(name: str) -> None:
    """Even from somebody who has the key."""
    for field in ("files", "results"):
        with pytest.raises(SnapshotError, match="is no name"):
            decoded(changed(**{field: a_file(name=name)}))
    with pytest.raises(SnapshotError, match="is no name"):
        decoded(changed(splits=a_file(name=name)[0]))


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": -1},
        {"epoch": "1"},
        {"epoch": True},
        {"epoch": 1.0},
        {"job": b"word-count"},
        {"job": None},
        {"files": None},
        {"files": {}},
        {"files": [[]]},
        {"files": a_file(length=-1)},
        {"files": a_file(sha256="0" * 63)},
        {"files": a_file(sha256="G" * 64)},
        {"files": a_file(is_base=1)},
        {"files": a_file(operators="count")},
        {"files": a_file() + a_file()},
        {"offsets": []},
        {"offsets": {"read": []}},
        {"offsets": {"read": {"a.txt": [1]}}},
        {"offsets": {"read": {"a.txt": [1, 0]}}},
        {"offsets": {1: {}}},
        {"offsets": {"b": {}, "a": {}}},
        {"transactions": [["write", 0, "text"]]},
        {"transactions": [["write", 0]]},
        {"ended": [[1]]},
        {"operators": [1]},
        {"splits": []},
        {"unknown": 1},
    ],
    ids=str,
)
def test_field_that_is_not_as_it_must_be_is_refused(changes: dict[str, Any]) -> None:
    """What is signed may still come from a version with a bug."""
    with pytest.raises(SnapshotError):
        decoded(changed(**changes))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x01", b"\x80", b"\x80\x80"])
def test_body_of_another_shape_is_refused(body: bytes) -> None:
    """Signed or not, it must be a manifest."""
    with pytest.raises(SnapshotError):
        decoded(signed(body))


def test_missing_field_is_refused() -> None:
    """Nothing has a default."""
    plain = msgpack.unpackb(module._packed(some_manifest()))
    for name in plain:
        rest = {field: plain[field] for field in plain if field != name}
        with pytest.raises(SnapshotError):
            decoded(signed(msgpack.packb(rest)))


@pytest.mark.parametrize(
    ("version", "age"), [(FORMAT - 1, "older"), (FORMAT + 1, "newer")]
)
def test_other_format_is_named(version: int, age: str) -> None:
    """The user learns that the release is the problem, not the disk."""
    body = module._packed(some_manifest())
    with pytest.raises(SnapshotError, match=f"{age} Millstream, in format {version}"):
        decoded(signed(body, version=version))


def test_manifest_of_the_format_before_is_refused_by_its_format() -> None:
    """It has no id; to read it would let its writer choose to have none."""
    old = signed(module._packed(some_manifest()), version=2, directory=b"")
    with pytest.raises(SnapshotError, match="older Millstream, in format 2"):
        decoded(old)


def test_manifest_counts_in_its_own_directory_only() -> None:
    """Several directories may have one key, from the environment."""
    data = encoded_manifest(some_manifest(), KEY, DIRECTORY[::-1])
    with pytest.raises(SnapshotError, match="belongs to another state directory"):
        decoded(data)


def test_manifest_that_could_not_be_read_back_is_not_written() -> None:
    """The mistake shows while the job still has the older epoch."""
    manifest = some_manifest()
    bad = [
        replace(manifest, files=(replace(REF, name="../x"),)),
        replace(manifest, ended=[(0, 1)]),  # type: ignore[arg-type]
        replace(manifest, epoch=-1),
    ]
    for each in bad:
        with pytest.raises(SnapshotError):
            encoded_manifest(each, KEY, DIRECTORY)
