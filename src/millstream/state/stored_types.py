"""The names by which stored values refer to types: the one table of them.

A name here stands in state directories for as long as a release reads them.  So a class may
be moved or renamed, in which case its path here changes; its name and the order of its
fields do not, new fields come last and have a default, and no name is used again.

Whatever is not here is a user's, and stored by the path that pickle finds for it.  Nothing
here knows how values become bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, NotImplementedType
from typing import TYPE_CHECKING
from uuid import UUID, SafeUUID

from millstream import errors
from millstream.errors import MillstreamError, SnapshotError
from millstream.state.batches import arrow_bytes
from millstream.state.stored_arrays import BY_PYTHON, reduced_array, reduced_number
from millstream.values import Value

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    import polars as pl

__all__ = [
    "NAMED",
    "OWN",
    "RECORDS",
    "SINGLE",
    "TAG",
    "Reducer",
    "is_immutable",
    "name_of",
    "reducer_of",
    "single_of",
    "stored_object",
]

Reduced = tuple[Callable[..., object], tuple[object, ...]]
"""What to call, and with what."""

Maker = type | FunctionType | BuiltinFunctionType
"""What makes an object: a class or a function."""

Reducer = Callable[[Value], Reduced | NotImplementedType | None]
"""Returns a `Reduced`, NotImplemented to let Python do it, or None for a user's value."""

RECORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "behind": ("millstream.plan.time:LateTimestamp", ("real", "watermark")),
    "bad row": (
        "millstream.connectors.bad_rows:BadRow",
        ("file", "line", "offset", "text", "cause"),
    ),
    "byte range": (
        "millstream.connectors.text:_ByteRange",
        ("path", "start", "end", "size"),
    ),
    "dead letter": (
        "millstream.operators.dead_letters:DeadLetter",
        ("record", "cause", "operator", "position"),
    ),
    "decision": ("millstream.protocol.rounds:Decision", ("number", "is_over", "value")),
    "frame byte range": (
        "millstream.connectors.frame_files:ByteRange",
        ("path", "start", "end", "size"),
    ),
    "held parts": (
        "millstream.connectors.parts:Kept",
        ("pieces", "age_ns", "is_blank"),
    ),
    "late row": ("millstream.plan.time:LateRow", ("key", "value", "timestamp")),
    "panes and behind": (
        "millstream.operators.windows.time:_PanesAndBehind",
        ("panes", "behind"),
    ),
    "piece": (
        "millstream.connectors.output:Piece",
        ("home", "folder", "name", "size"),
    ),
    "rounds": ("millstream.protocol.rounds:RoundsSoFar", ("round", "done", "history")),
    "row group": (
        "millstream.connectors.parquet:_RowGroup",
        ("path", "number", "rows"),
    ),
    "sealed parts": (
        "millstream.connectors.parts:SealedParts",
        ("generation", "is_first", "moves", "spent", "held"),
    ),
    "sealed rows": (
        "millstream.connectors.sql:SealedRows",
        ("name", "generation", "target", "rows", "pieces"),
    ),
    "split": ("millstream.connectors.base:Split", ("name", "payload")),
    "timer": ("millstream.operators.rows.timers:Timer", ("time", "kind")),
    "window": ("millstream.plan.windows:Window", ("start", "end")),
}
"""By name: where the class is, and the fields that it is stored by and made of."""

SINGLE = {
    "deleted": ("millstream.state.row_codec:DELETED", "_Deleted"),
    "missing": ("millstream.plan.aggregate:MISSING", "_Missing"),
    "nan": ("millstream.state.nan:NAN", "NotANumber"),
}
"""By name: where an object is of whose type there is no other, and that type."""

_OF_PYTHON = {
    "builtins": (
        "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int",
        "list", "object", "range", "set", "slice", "str", "tuple",
    ),
    "collections": ("Counter", "OrderedDict", "defaultdict", "deque"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "uuid": ("UUID",),
}  # fmt: skip
"""Classes that are stored as Python does it, under their own name."""

_ERRORS = {
    f"error {kind.code}": f"{kind.__module__}:{kind.__qualname__}"
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MillstreamError)
}
"""By their codes, which do not change either."""

NAMED = {
    **{
        name: f"{module}:{name}" for module in _OF_PYTHON for name in _OF_PYTHON[module]
    },
    **{name: path for name, (path, _) in (RECORDS | SINGLE).items()},
    **_ERRORS,
    "array": "millstream.state.stored_arrays:stored_array",
    "frame": "millstream.state.batches:frame_from_arrow",
    "made error": "millstream.errors:_rebuild",
    "number": "millstream.state.stored_arrays:stored_number",
    "zone": "zoneinfo:ZoneInfo",
}
"""By name: where everything is that a stored value may refer to."""

OWN = "millstream"
_NAMES = {path: name for name, path in NAMED.items()}
_KINDS_MAX = 4096
_GLOBALS = (type, FunctionType, BuiltinFunctionType)
_FROZEN = frozenset({complex, frozenset, range, slice})
_FROZEN_MODULES = frozenset({"datetime", "decimal", "fractions", "uuid", "zoneinfo"})


def stored_object(name: str) -> Value:
    """Return what a name in a stored value stands for.

    Examples
    --------
    >>> from millstream.state.stored_types import stored_object
    >>> stored_object("window")
    <class 'millstream.plan.windows.Window'>
    """
    path = NAMED.get(name)
    if path is None:
        msg = (
            f"a stored value refers to {name!r}, which this Millstream does not know; "
            "go on with the release that wrote it, or a newer one"
        )
        raise SnapshotError(msg)
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)


# Pickle writes this function by the path that it finds here, whatever module it is in.
TAG = (OWN, "_stored")
stored_object.__module__, stored_object.__qualname__ = TAG


def name_of(maker: Maker) -> str | None:
    """Return the name of a class or a function in the table; None if it has none."""
    return _NAMES.get(f"{maker.__module__}:{maker.__qualname__}")


def single_of(kind: type) -> str | None:
    """Return the name of the only object of a type; None if there are others."""
    return _SINGLE_TYPES.get(f"{kind.__module__}:{kind.__qualname__}")


@lru_cache(_KINDS_MAX)
def is_immutable(kind: type) -> bool:
    """Whether values of a type in the table cannot change, so two that are equal are one."""
    if kind in _FROZEN or issubclass(kind, _GLOBALS) or single_of(kind) is not None:
        return True
    if name_of(kind) in RECORDS:
        how = getattr(kind, "__dataclass_params__", None)
        return issubclass(kind, int | tuple) if how is None else bool(how.frozen)
    return _is_number(kind) or (
        kind.__module__ in _FROZEN_MODULES and name_of(kind) is not None
    )


@lru_cache(_KINDS_MAX)
def reducer_of(kind: type) -> Reducer | NotImplementedType | None:
    """Return how values of a type are reduced; None for those of a user's.

    NotImplemented, which need not be called, says that Python's own way will do.
    """
    if issubclass(kind, _GLOBALS):
        return _reduced_global
    path, name = f"{kind.__module__}:{kind.__qualname__}", name_of(kind)
    if name in RECORDS:
        return partial(_reduced_record, kind, attrgetter(*RECORDS[name][1]))
    if path in _SPECIAL:
        return _SPECIAL[path]
    if name in _ERRORS or (name is not None and kind.__module__ in _OF_PYTHON):
        return BY_PYTHON  # type: ignore[no-any-return]  # it is a constant
    single = single_of(kind)
    if single is not None:
        return lambda _: (stored_object, (single,))
    return reduced_number if _is_number(kind) else None


def _reduced_global(value: Maker) -> Reduced | NotImplementedType | None:
    """Return the name of a class or a function; None if it is a user's."""
    is_tag = value is stored_object
    module, name = value.__module__ or "", name_of(value)
    if name is not None and stored_object(name) is value:
        return stored_object, (name,)
    if module.partition(".")[0] == OWN and not is_tag:
        msg = f"{module}.{value.__qualname__} of Millstream is not for storing"
        raise TypeError(msg)
    return BY_PYTHON if is_tag else None


def _reduced_record(
    kind: type, fields: Callable[[Value], tuple[Value, ...]], value: Value
) -> Reduced:
    return kind, fields(value)


def _reduced_frame(frame: pl.DataFrame) -> Reduced | NotImplementedType:
    has_addresses = any(kind.is_object() for kind in frame.dtypes)
    return (
        BY_PYTHON if has_addresses else (stored_object("frame"), (arrow_bytes(frame),))
    )


def _reduced_zone(zone: ZoneInfo) -> Reduced | NotImplementedType:
    return BY_PYTHON if not zone.key else (type(zone), (zone.key,))


def _reduced_uuid(uuid: UUID) -> Reduced | NotImplementedType:
    is_usual = uuid.is_safe is SafeUUID.unknown
    return (UUID, (None, uuid.bytes)) if is_usual else BY_PYTHON


def _is_number(kind: type) -> bool:
    """Whether it is a scalar of NumPy, which may not be there; a record can change."""
    of_numpy = [k.__name__ for k in kind.__mro__ if k.__module__ == "numpy"]
    return (
        kind.__module__ == "numpy" and "generic" in of_numpy and "void" not in of_numpy
    )


_SINGLE_TYPES = {
    f"{path.partition(':')[0]}:{kind}": name for name, (path, kind) in SINGLE.items()
}
_SPECIAL: dict[str, Reducer] = {
    "numpy:ndarray": reduced_array,
    "polars.dataframe.frame:DataFrame": _reduced_frame,
    "uuid:UUID": _reduced_uuid,
    "zoneinfo:ZoneInfo": _reduced_zone,
}
