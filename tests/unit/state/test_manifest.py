"""Manifests: verified before they are read, and read strictly."""

from __future__ import annotations

import hmac
import struct
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from tests.snapshots import KEY, Driver, MemoryFiles

from millstream.errors import SnapshotError
from millstream.protocol.handshake import derive_key
from millstream.state import manifest as module
from millstream.state.manifest import (
    FileRef,
    Manifest,
    decoded_manifest,
    encoded_manifest,
)
from millstream.state.store import SnapshotStore

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


def signed(body: bytes, *, version: int = 1) -> bytes:
    """Return bytes that only somebody with the key can make."""
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
    assert decoded_manifest(encoded_manifest(manifest, KEY), KEY) == manifest


def test_manifest_has_one_form() -> None:
    """The order in which splits were noted does not show."""
    manifest = some_manifest()
    offsets = {"read": dict(reversed(manifest.offsets["read"].items()))}
    other = replace(manifest, offsets=offsets)
    assert encoded_manifest(other, KEY) == encoded_manifest(manifest, KEY)


def test_manifest_of_another_key_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes of strangers reach no parser."""
    data = encoded_manifest(some_manifest(), KEY)
    parsed: list[bytes] = []
    monkeypatch.setattr(module, "_unpacked", parsed.append)
    for spot in range(len(data)):
        flipped = data[:spot] + bytes([data[spot] ^ 1]) + data[spot + 1 :]
        with pytest.raises(SnapshotError):
            decoded_manifest(flipped, KEY)
    with pytest.raises(SnapshotError, match="another key"):
        decoded_manifest(data, KEY[::-1])
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
            decoded_manifest(changed(**{field: a_file(name=name)}), KEY)
    with pytest.raises(SnapshotError, match="is no name"):
        decoded_manifest(changed(splits=a_file(name=name)[0]), KEY)


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
        decoded_manifest(changed(**changes), KEY)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x01", b"\x80", b"\x80\x80"])
def test_body_of_another_shape_is_refused(body: bytes) -> None:
    """Signed or not, it must be a manifest."""
    with pytest.raises(SnapshotError):
        decoded_manifest(signed(body), KEY)


def test_missing_field_is_refused() -> None:
    """Nothing has a default."""
    plain = msgpack.unpackb(module._packed(some_manifest()))
    for name in plain:
        rest = {field: plain[field] for field in plain if field != name}
        with pytest.raises(SnapshotError):
            decoded_manifest(signed(msgpack.packb(rest)), KEY)


def test_newer_format_is_named() -> None:
    """The user learns that the release is the problem, not the disk."""
    body = module._packed(some_manifest())
    with pytest.raises(SnapshotError, match="format 2"):
        decoded_manifest(signed(body, version=2), KEY)


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
            encoded_manifest(each, KEY)
