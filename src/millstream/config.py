"""Every limit and default of the engine, with its unit in its name.

A `Config` is plain data: it is made once in the driver, travels with the plan, and
nothing changes it afterwards.  ``millstream run --set name=value`` sets one field.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BufferPolicy",
    "Config",
    "adaptive",
    "byte_count",
    "configured",
    "fixed",
    "nanoseconds",
]

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min|m|h|d|w)\s*")
_DURATION = re.compile(rf"\s*(?:{_PART.pattern})+")
_UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]i?)?B?\s*")
_UNIT_BYTES = {
    **{unit: 1000 ** (power + 1) for power, unit in enumerate("kMGT")},
    "K": 1000,
    "Ki": 1024,
    **{f"{unit}i": 1024 ** (power + 1) for power, unit in enumerate("kMGT")},
}
_POLICY = re.compile(r"\s*(fixed|adaptive)\(\s*(\d+)\s*(?:,\s*([^)]+?))?\s*\)\s*")


def nanoseconds(duration: str | timedelta) -> int:
    """Return a duration such as ``"50ms"``, ``"1m30s"`` or a `timedelta` in nanoseconds.

    Examples
    --------
    >>> nanoseconds("50ms")
    50000000
    >>> nanoseconds("1m30s") == nanoseconds("1.5min")
    True
    >>> nanoseconds(timedelta(seconds=2))
    2000000000
    """
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1_000_000_000)
    if _DURATION.fullmatch(duration) is None:
        msg = (
            f"cannot read the duration {duration!r}; write a number and a unit "
            "(ns, us, ms, s, m, h, d, w), for example '50ms' or '1h30m'"
        )
        raise UsageError(msg)
    return sum(round(float(n) * _UNIT_NS[unit]) for n, unit in _PART.findall(duration))


def byte_count(size: str | int) -> int:
    """Return a size such as ``"128MB"`` or ``"64MiB"`` in bytes.

    Examples
    --------
    >>> byte_count("128MB"), byte_count("64MiB"), byte_count(512)
    (128000000, 67108864, 512)
    """
    match = _SIZE.fullmatch(str(size))
    if match is None or isinstance(size, bool):
        msg = (
            f"cannot read the size {size!r}; write a number of bytes, or a number and a "
            "unit (kB, MB, GB, KiB, MiB, GiB), for example '128MB'"
        )
        raise UsageError(msg)
    unit = match[2]
    return round(float(match[1]) * (_UNIT_BYTES[unit] if unit else 1))


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """When an output buffer is sent: at `rows` rows, or after `timeout_ns`."""

    rows: int
    timeout_ns: int | None

    def __str__(self) -> str:
        """Return the expression that makes this policy."""
        if self.timeout_ns is None:
            return f"fixed({self.rows})"
        return f"adaptive({self.rows}, {self.timeout_ns / 1_000_000:g}ms)"


def fixed(rows: int) -> BufferPolicy:
    """Send an output buffer when it holds `rows` rows, however long that takes.

    Examples
    --------
    >>> print(fixed(1024))
    fixed(1024)
    """
    return BufferPolicy(_positive(rows), None)


def adaptive(rows: int, timeout: str | timedelta) -> BufferPolicy:
    """Send an output buffer at `rows` rows or when its first row waited `timeout`.

    Examples
    --------
    >>> print(adaptive(1024, "50ms"))
    adaptive(1024, 50ms)
    """
    return BufferPolicy(_positive(rows), nanoseconds(timeout))


def _positive(rows: int) -> int:
    if rows < 1:
        msg = f"a buffer holds at least 1 row, got {rows}"
        raise UsageError(msg)
    return rows


_LEAST = {"packet_bytes_max": 1000}
"""Less than that leaves no room for what the members of a job tell each other."""
_MODES = ("asynchronous", "synchronous")


@dataclass(frozen=True, slots=True)
class Config:
    """Limits and defaults of one job."""

    #: How output buffers are sent, unless a stream says otherwise.
    buffer: BufferPolicy = BufferPolicy(1024, 50_000_000)
    #: The same for streams of data frames, whose rows are cheaper by the batch.
    frame_buffer: BufferPolicy = BufferPolicy(65_536, 50_000_000)
    #: Rows of a data frame that a source makes at least, if its time allows no more.
    frame_rows_min: int = 1024
    #: Rows of a data frame that a source makes at most, if larger ones are faster.
    frame_rows_max: int = 131_072
    #: Number of ranges of key hashes; the unit in which keyed state moves.
    shard_count: int = 1024
    #: Rows a source hands over at once, at most.
    source_batch_rows: int = 1024
    #: Bytes a text source reads at once; about as many lines as a batch has rows.
    source_block_bytes: int = 65_536
    #: Splits a task reads at the same time, at most.
    open_splits_max: int = 64
    #: A source that had nothing is asked again after this time.
    source_idle_ms: float = 0.5
    #: Watermarks of a source are at least this far apart; each sends the buffers.
    watermark_every_ms: float = 50.0
    #: Batches a task takes in one turn before its neighbours get theirs.
    slice_batches: int = 16
    #: Batches that may wait between two tasks of the same worker.
    local_channel_batches: int = 32
    #: Bytes of encoded batches that all channels into one worker may hold.
    worker_buffer_bytes: int = 64 * 1024 * 1024
    #: Most bytes of encoded batches in flight on one channel.
    channel_credit_bytes: int = 1024 * 1024
    #: Longest packet a peer may announce; checked before memory is allocated.
    packet_bytes_max: int = 64 * 1024 * 1024
    #: Bytes of results that may wait on the way to the driver, per worker.
    result_backlog_bytes: int = 8 * 1024 * 1024
    #: Keys a combiner keeps before it sends its partial results on.
    combine_keys_max: int = 200_000
    #: Rows of data frames wait so long to be combined, at most, if they are waited for.
    combine_held_ms: int = 1000
    #: Keys whose owner a router remembers.
    route_cache_keys_max: int = 1_000_000
    #: Rows a sort keeps in memory; sorted runs beyond it go to disk.
    sort_memory_rows: int = 1_000_000
    #: Bytes of data frames a sort keeps in memory; sorted runs beyond it go to disk.
    sort_memory_bytes: int = 256 * 1024 * 1024
    #: Bytes of batches that each end of a loop keeps in memory; the rest goes to disk.
    loop_memory_bytes: int = 512 * 1024 * 1024
    #: Bytes the right side of a join of two frames may have, as every worker holds it.
    join_right_bytes_max: int = 256 * 1024 * 1024
    #: Bytes of left rows that wait in memory for the right side; the rest goes to disk.
    join_left_memory_bytes: int = 64 * 1024 * 1024
    #: Rows one side of a zip may be ahead of the other.
    zip_ahead_rows_max: int = 1_000_000
    #: Time between two snapshots, where a state directory was given.
    snapshot_every_ms: int = 5000
    #: A snapshot that takes longer is given up; the next one has all that it had, and twice the time.
    snapshot_timeout_ms: int = 60_000
    #: Time before a commit that failed is tried again.
    snapshot_retry_ms: int = 1000
    #: `asynchronous`, or `synchronous` to stop all tasks while a snapshot is stored.
    snapshot_mode: str = "asynchronous"
    #: Complete snapshots that are kept.
    snapshots_retained: int = 3
    #: Bytes that RocksDB may use in a worker, for blocks and write buffers of all tables.
    rocksdb_memory_bytes: int = 64 * 1024 * 1024
    #: How often a job goes back for one and the same failure before it ends.
    restarts_max: int = 3
    #: Time between two signs of life of a worker.
    heartbeat_ms: int = 500
    #: A worker or a coordinator silent for this long counts as lost.
    lease_ms: int = 6_000
    #: Time a peer has to prove that it knows the secret.
    handshake_ms: int = 3_000
    #: Connections that have not proved it yet; then one gives way that is drawn.
    half_open_max: int = 256
    #: The same for those that come from one address.
    half_open_address_max: int = 128
    #: Time the workers have to register and connect.
    launch_timeout_ms: int = 120_000
    #: Time the workers have to leave after they were told to stop.
    stop_grace_ms: int = 5_000
    #: Time between two looks for requests in the state directory; ten times it at a URL.
    control_look_ms: int = 500
    #: Time between two progress reports of a worker.
    progress_ms: int = 250
    #: Time between two lines about a job's progress, where they are logged.
    progress_log_ms: int = 10_000
    #: Decisions of a job that `job.story()` keeps, and as many warnings beside them.
    story_entries_max: int = 300

    def with_setting(self, text: str) -> Config:
        """Return a copy with one ``name=value`` applied.

        Examples
        --------
        >>> Config().with_setting("buffer=fixed(64)").buffer
        BufferPolicy(rows=64, timeout_ns=None)
        """
        name, separator, value = text.partition("=")
        if not separator:
            msg = f"cannot read the setting {text!r}; write name=value"
            raise UsageError(msg)
        return configured(self, {name.strip(): value.strip()})


def configured(
    config: Config, settings: dict[str, Any], options: Iterable[str] = ()
) -> Config:
    """Return `config` with the named settings replaced; text values are parsed.

    `options` are other names that may have been meant.
    """
    kinds = {field.name: str(field.type) for field in fields(Config)}
    changes: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in kinds:
            guess = difflib.get_close_matches(name, [*options, *kinds], n=1)
            hint = f"; did you mean {guess[0]!r}?" if guess else ""
            msg = f"there is no setting {name!r}{hint} (settings: {', '.join(kinds)})"
            raise UsageError(msg)
        changes[name] = _parsed(name, kinds[name], value)
    return replace(config, **changes)


def _parsed(name: str, kind: str, value: object) -> object:
    if kind == "BufferPolicy":
        return value if isinstance(value, BufferPolicy) else _policy(str(value))
    if kind == "str":
        return _mode(name, value)
    number = float if kind == "float" else int
    try:
        parsed = number(str(value).replace("_", ""))
    except ValueError:
        what = "a number" if kind == "float" else "a whole number"
        msg = f"setting {name!r} takes {what}, got {value!r}"
        raise UsageError(msg) from None
    if parsed <= 0:
        msg = f"setting {name!r} must be greater than 0, got {value!r}"
        raise UsageError(msg)
    if parsed < _LEAST.get(name, 0):
        msg = f"setting {name!r} must be at least {_LEAST[name]}, got {value!r}"
        raise UsageError(msg)
    return parsed


def _mode(name: str, value: object) -> str:
    if value not in _MODES:
        msg = f"setting {name!r} is one of {', '.join(_MODES)}, got {value!r}"
        raise UsageError(msg)
    return str(value)


def _policy(text: str) -> BufferPolicy:
    match = _POLICY.fullmatch(text)
    if match is None or (match[1] == "adaptive") != (match[3] is not None):
        msg = (
            f"cannot read the buffer policy {text!r}; write 'fixed(1024)' or "
            "'adaptive(1024, 50ms)'"
        )
        raise UsageError(msg)
    if match[1] == "fixed":
        return fixed(int(match[2]))
    return adaptive(int(match[2]), match[3].strip("'\""))
