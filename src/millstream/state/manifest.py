"""What a manifest says, and its bytes.

A manifest is the list of everything that an epoch needs.  Its bytes are a header, a
msgpack body in one canonical form, and an HMAC of both under the key of the state
directory::

    "MSMF" format:u16  bytes:u64  id of the directory:16 bytes  body  hmac:32 bytes

where `bytes` counts the id and the body.  They are read in this order: length, magic,
HMAC, format, id, and only then the body, which must have every field, of its type, and be
byte for byte what encoding it again gives.
Nothing here reads or writes files, or knows which of two manifests is newer.
"""

from __future__ import annotations

import hmac
import re
import struct
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

import msgpack

from millstream.errors import SnapshotError
from millstream.protocol.handshake import derive_key
from millstream.state.notes import DIRECTORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.values import Plain

__all__ = [
    "FORMAT",
    "FileRef",
    "Fingerprints",
    "Manifest",
    "Offsets",
    "Transaction",
    "decoded_manifest",
    "encoded_manifest",
]

FORMAT = 4
"""Version of manifests and of the layout of a state directory."""

Fingerprints = dict[str, dict[str, tuple[str, ...]]]
"""By operator, and by what is said about it: what stands under its name."""

Offsets = dict[str, dict[str, tuple[int, bool]]]
"""By operator and split: the offset, and whether the split has been read to its end."""

Transaction = tuple[str, int, bytes]
"""Operator of the sink, task, and what its writer sealed."""

_MAGIC = b"MSMF"
_TEXT_ERRORS = "surrogatepass"
"""The name of a split may hold lone surrogates, as `os.fsdecode` makes them."""

_START = struct.Struct(">4sHQ")
_PROOF_BYTES = 32
_NAME = re.compile(r"epochs/\d{8,}/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file that an epoch needs.

    Attributes
    ----------
    name
        Relative to the state directory.
    sha256
        Digest of the content, in hexadecimal.
    operators
        Whose state is in it.
    is_base
        Whether it holds all state of its task; else what changed since an epoch.
    epoch, since
        It holds the changes after `since` up to `epoch`.
    stage, task
        Whose state it was when it was written.
    """

    name: str
    length: int
    sha256: str
    operators: tuple[str, ...]
    is_base: bool
    epoch: int
    since: int
    stage: int
    task: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that an epoch needs.

    Attributes
    ----------
    parent_epoch
        The complete epoch before it, or 0.
    claim, run
        Which start of the driver made it.
    files
        State, in the order in which it applies: a base before its deltas.
    splits
        The list of splits of all sources, as it was when the job began.
    results
        Rows of `collect` up to this epoch.
    ended
        Stage and task of the tasks that had ended.
    left
        Of those, how many operators, from the first on, had ended only because nobody
        read what they made.
    ended_operators
        Operators that had ended in all tasks, and whether any of these was left; for
        another plan, or another number of tasks.
    operators
        Names of the operators that have state, also of those whose state is empty.
    created
        When it was made, for diagnostics only.
    flow
        Name of the flow whose state it is.
    sources
        What the sources were asked to read, by operator; empty where nobody knows.
    fingerprints
        What the operators keep, whether or not they have kept something by now.
    """

    format: int
    job: str
    plan_hash: str
    epoch: int
    parent_epoch: int
    generation: int
    claim: int
    run: str
    shard_count: int
    key_hash_version: int
    task_count: int
    files: tuple[FileRef, ...]
    offsets: Offsets
    splits: FileRef | None
    results: tuple[FileRef, ...]
    transactions: tuple[Transaction, ...]
    ended: tuple[tuple[int, int], ...]
    left: tuple[tuple[int, int, int], ...]
    ended_operators: tuple[tuple[str, bool], ...]
    operators: tuple[str, ...]
    duration_ms: int
    created: str
    flow: str
    sources: dict[str, str]
    fingerprints: Fingerprints

    @property
    def finished_operators(self) -> frozenset[str]:
        """Operators that had ended, and would give nothing more if they were read."""
        return frozenset(n for n, was_left in self.ended_operators if not was_left)

    def references(self) -> tuple[FileRef, ...]:
        """Return all files that it lists."""
        splits = () if self.splits is None else (self.splits,)
        return (*self.files, *splits, *self.results)


def encoded_manifest(manifest: Manifest, key: bytes, directory: bytes) -> bytes:
    """Return the bytes of a manifest; one that could not be read back is refused.

    Parameters
    ----------
    directory
        Id of the state directory that it is for; it counts in no other.
    """
    assert len(directory) == DIRECTORY_BYTES, "the id of a directory"
    body = _packed(manifest)
    if _unpacked(body) != manifest:
        msg = (
            f"the manifest of epoch {manifest.epoch} would read back as another one; "
            "its sequences must be tuples"
        )
        raise SnapshotError(msg)
    size = DIRECTORY_BYTES + len(body)
    data = _START.pack(_MAGIC, manifest.format, size) + directory + body
    return data + _proof(key, data)


def decoded_manifest(
    data: bytes, key: bytes, directory: Callable[[], bytes]
) -> Manifest:
    """Return what the bytes say once they are known to be ours and whole.

    Parameters
    ----------
    directory
        Returns the id of the state directory that they lie in.
    """
    if len(data) < _START.size + _PROOF_BYTES:
        msg = f"it is cut off: it has {len(data)} bytes"
        raise SnapshotError(msg)
    magic, version, size = _START.unpack_from(data)
    if magic != _MAGIC:
        msg = f"it is no manifest: it begins with {magic!r}"
        raise SnapshotError(msg)
    if size != len(data) - _START.size - _PROOF_BYTES:
        msg = f"it has {len(data)} bytes and announces a body of {size}"
        raise SnapshotError(msg)
    proof = data[-_PROOF_BYTES:]
    if not hmac.compare_digest(proof, _proof(key, data[:-_PROOF_BYTES])):
        msg = "it was changed after it was written, or written under another key"
        raise SnapshotError(msg)
    if version != FORMAT:
        older = "an older" if version < FORMAT else "a newer"
        msg = (
            f"it was written by {older} Millstream, in format {version}, and this one "
            f"reads format {FORMAT}; go on with the release that wrote it, or begin "
            "with a new state directory"
        )
        raise SnapshotError(msg)
    start = _START.size + DIRECTORY_BYTES
    if data[_START.size : start] != directory():
        msg = (
            "it belongs to another state directory; copy directories as a whole, or "
            "begin with that one by resume_from="
        )
        raise SnapshotError(msg)
    return _unpacked(data[start:-_PROOF_BYTES])


def _proof(key: bytes, data: bytes) -> bytes:
    return hmac.digest(derive_key(key, b"manifest"), data, "sha256")


def _packed(manifest: Manifest) -> bytes:
    plain = {field.name: getattr(manifest, field.name) for field in fields(Manifest)}
    plain["files"] = [_plain(ref) for ref in manifest.files]
    plain["results"] = [_plain(ref) for ref in manifest.results]
    plain["splits"] = None if manifest.splits is None else _plain(manifest.splits)
    plain["offsets"] = {
        operator: dict(sorted(splits.items()))
        for operator, splits in sorted(manifest.offsets.items())
    }
    plain["sources"] = dict(sorted(manifest.sources.items()))
    plain["fingerprints"] = {
        operator: dict(sorted(said.items()))
        for operator, said in sorted(manifest.fingerprints.items())
    }
    return bytes(msgpack.packb(plain, unicode_errors=_TEXT_ERRORS))


def _plain(ref: FileRef) -> list[Plain]:
    return [getattr(ref, field.name) for field in fields(FileRef)]


def _unpacked(body: bytes) -> Manifest:
    try:
        manifest = _checked(msgpack.unpackb(body, unicode_errors=_TEXT_ERRORS))
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        msg = f"it does not say what a manifest must say ({error})"
        raise SnapshotError(msg) from error
    if _packed(manifest) != body:
        msg = "its fields are not in the order in which they are written"
        raise SnapshotError(msg)
    return manifest


def _checked(plain: Plain) -> Manifest:
    """Return a manifest all of whose fields have their type, or raise."""
    names = [field.name for field in fields(Manifest)]
    found = _of(dict, plain)
    if list(found) != names:
        raise ValueError("its fields are " + ", ".join(map(str, found)))
    manifest = Manifest(
        format=_count(found["format"]),
        job=_text(found["job"]),
        plan_hash=_text(found["plan_hash"]),
        epoch=_count(found["epoch"]),
        parent_epoch=_count(found["parent_epoch"]),
        generation=_count(found["generation"]),
        claim=_count(found["claim"]),
        run=_text(found["run"]),
        shard_count=_count(found["shard_count"]),
        key_hash_version=_count(found["key_hash_version"]),
        task_count=_count(found["task_count"]),
        files=_tuple(found["files"], _file_ref),
        offsets=_offsets(found["offsets"]),
        splits=None if found["splits"] is None else _file_ref(found["splits"]),
        results=_tuple(found["results"], _file_ref),
        transactions=_tuple(found["transactions"], _transaction),
        ended=_tuple(found["ended"], _pair),
        left=_tuple(found["left"], _triple),
        ended_operators=_tuple(found["ended_operators"], _ended_operator),
        operators=_tuple(found["operators"], _text),
        duration_ms=_count(found["duration_ms"]),
        created=_text(found["created"]),
        flow=_text(found["flow"]),
        sources={_text(o): _text(s) for o, s in _of(dict, found["sources"]).items()},
        fingerprints=_fingerprints(found["fingerprints"]),
    )
    used = [ref.name for ref in manifest.references()]
    if len(set(used)) != len(used):
        msg = "a file is listed twice"
        raise ValueError(msg)
    return manifest


def _file_ref(plain: Plain) -> FileRef:
    name, length, digest, operators, is_base, epoch, since, stage, task = _of(
        list, plain
    )
    if not _NAME.fullmatch(_text(name)):
        msg = f"{name!r} is no name of a state file"
        raise ValueError(msg)
    if not _DIGEST.fullmatch(_text(digest)):
        msg = f"{digest!r} is no digest"
        raise ValueError(msg)
    return FileRef(
        name, _count(length), digest, _tuple(operators, _text), _flag(is_base),
        _count(epoch), _count(since), _count(stage), _count(task),
    )  # fmt: skip


def _offsets(plain: Plain) -> Offsets:
    return {
        _text(operator): {
            _text(split): (_count(offset), _flag(is_done))
            for split, (offset, is_done) in _of(dict, splits).items()
        }
        for operator, splits in _of(dict, plain).items()
    }


def _fingerprints(plain: Plain) -> Fingerprints:
    return {
        _text(operator): {
            _text(name): _tuple(values, _text)
            for name, values in _of(dict, said).items()
        }
        for operator, said in _of(dict, plain).items()
    }


def _transaction(plain: Plain) -> Transaction:
    operator, task, sealed = _of(list, plain)
    return _text(operator), _count(task), _of(bytes, sealed)


def _pair(plain: Plain) -> tuple[int, int]:
    stage, task = _of(list, plain)
    return _count(stage), _count(task)


def _triple(plain: Plain) -> tuple[int, int, int]:
    stage, task, count = _of(list, plain)
    return _count(stage), _count(task), _count(count)


def _ended_operator(plain: Plain) -> tuple[str, bool]:
    operator, was_left = _of(list, plain)
    return _text(operator), _flag(was_left)


def _tuple(plain: Plain, item: Callable[[Plain], T]) -> tuple[T, ...]:
    return tuple(item(part) for part in _of(list, plain))


def _count(value: Plain) -> int:
    count = _of(int, value)
    if count < 0:
        msg = f"{count} is below zero"
        raise ValueError(msg)
    return count


def _text(value: Plain) -> str:
    return _of(str, value)


def _flag(value: Plain) -> bool:
    return _of(bool, value)


def _of(kind: type[T], value: Plain) -> T:
    """Return a value whose type is exactly this one: True is no number."""
    if type(value) is not kind:
        msg = f"{value!r} is no {kind.__name__}"
        raise ValueError(msg)
    return value
