"""How long rows of state take to encode and to decode, and their size, beside pickle.

Rows of several shapes, in the payloads of a segment, as pickle stores a list of pairs, as
Millstream does, and as msgpack with an extension type for tuples would.  What is measured
is processor time, garbage not looked for.

    python benchmarks/stored_values.py [--quick]
"""

from __future__ import annotations

import gc
import pickle
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import measure
import msgpack

from millstream.state.row_codec import SEGMENT_ROWS_MAX, decode_rows, encode_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    Columns = tuple[list[Any], list[Any]]

FULL_ROWS, QUICK_ROWS = 200_000, 20_000
NUMBERS_PER_ROW = 5
"""Rows of numbers are so many times as many."""
_TUPLE = 1


@dataclass(frozen=True, slots=True)
class Point:
    """What a user may keep."""

    x: int
    y: float


SHAPES: dict[str, Callable[[int], Any]] = {
    "(int, float)": lambda i: (i, i * 0.5),
    "dict of three": lambda i: {"count": i, "sum": i * 0.5, "name": f"n{i % 100}"},
    "list of tuples": lambda i: [(i, i * 0.5), (i + 1, 2.5), (i + 2, 3.5)],
    "dict of lists": lambda i: {i: [i, 2.5], i + 1: [1, 2]},
    "dict with datetime": lambda i: {"at": datetime.fromtimestamp(i, UTC), "count": i},
    "user's object": lambda i: Point(i, i * 0.5),
}


def main() -> None:
    """Measure all shapes."""
    options = measure.arguments(__doc__ or "").parse_args()
    count = QUICK_ROWS if options.quick else FULL_ROWS
    shapes: dict[str, list[Columns]] = {
        "int -> int": pieces(list(range(count * NUMBERS_PER_ROW)), lambda i: i * 7)
    }
    for name, make in SHAPES.items():
        shapes[f"text -> {name}"] = pieces([f"k{i}" for i in range(count)], make)
    for name, columns in shapes.items():
        compare(name, columns, options.rounds)


def pieces(keys: list[Any], make: Callable[[int], Any]) -> list[Columns]:
    """Return keys and values, as many at a time as a segment has."""
    values = list(map(make, range(len(keys))))
    return [
        (
            keys[start : start + SEGMENT_ROWS_MAX],
            values[start : start + SEGMENT_ROWS_MAX],
        )
        for start in range(0, len(keys), SEGMENT_ROWS_MAX)
    ]


def compare(name: str, columns: list[Columns], rounds: int) -> None:
    """Print how one shape fares, as multiples of what pickle takes."""
    contestants = {
        "pickle": (pickled, pickle.loads),
        "ours": (encode_rows, decode_rows),
    }
    if "object" not in name and "datetime" not in name:
        contestants["msgpack and a type for tuples"] = (extended, unextended)
    rows = []
    peers: tuple[float, ...] = ()
    for contestant, (encode, decode) in contestants.items():
        found = measured(contestant, encode, decode, columns, rounds)
        peers = peers or found
        ratios = [f"{own / peer:.2f}" for own, peer in zip(found, peers, strict=True)]
        rows.append((contestant, *ratios))
    print(f"\n{name}, {sum(len(keys) for keys, _ in columns):,} rows")
    measure.print_table(("", "encode", "decode", "bytes"), rows)


def measured(
    contestant: str,
    encode: Callable[[list[Any], list[Any]], bytes],
    decode: Callable[[bytes], Any],
    columns: list[Columns],
    rounds: int,
) -> tuple[float, float, float]:
    """Return how long encoding and decoding take, and how many bytes there are."""
    data = [encode(*each) for each in columns]
    for payload, each in zip(data, columns, strict=True):
        measure.check(contestant, decode(payload), list(zip(*each, strict=True)))
    encoding = [seconds(lambda: [encode(*c) for c in columns]) for _ in range(rounds)]
    decoding = [seconds(lambda: [decode(d) for d in data]) for _ in range(rounds)]
    size = sum(map(len, data))
    return statistics.median(encoding), statistics.median(decoding), float(size)


def seconds(work: Callable[[], object]) -> float:
    """Return how much processor time it takes."""
    gc.collect()
    gc.disable()
    started = time.process_time()
    work()
    took = time.process_time() - started
    gc.enable()
    return took


def pickled(keys: list[Any], values: list[Any]) -> bytes:
    """Return a list of pairs as a pickle."""
    return pickle.dumps(list(zip(keys, values, strict=True)), protocol=5)


def extended(keys: list[Any], values: list[Any]) -> bytes:
    """Return msgpack that knows tuples."""
    packed: bytes = msgpack.packb([keys, values], strict_types=True, default=_extension)
    return packed


def unextended(data: bytes) -> list[Any]:
    """Return what `extended` made bytes of."""
    keys, values = msgpack.unpackb(data, ext_hook=_extended, strict_map_key=False)
    return list(zip(keys, values, strict=True))


def _extension(value: Any) -> msgpack.ExtType:
    assert type(value) is tuple
    data = msgpack.packb(list(value), strict_types=True, default=_extension)
    return msgpack.ExtType(_TUPLE, data)


def _extended(code: int, data: bytes) -> Any:
    assert code == _TUPLE
    return tuple(msgpack.unpackb(data, ext_hook=_extended, strict_map_key=False))


if __name__ == "__main__":
    main()
