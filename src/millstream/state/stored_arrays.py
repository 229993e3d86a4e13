"""Arrays and numbers of NumPy in stored values, as plain bytes.

NumPy's own pickles name functions that its releases have moved.  Nothing here imports NumPy
before there is such a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from types import NotImplementedType
    from typing import Final

    import numpy as np
    import numpy.typing as npt

    from millstream.state.stored_types import Reduced

__all__ = [
    "BY_PYTHON",
    "reduced_array",
    "reduced_number",
    "stored_array",
    "stored_number",
]

BY_PYTHON: Final[NotImplementedType] = NotImplemented
"""What a reducer returns to let Python do it."""

_PLAIN_KINDS = frozenset("?biufcSU")
"""Kinds of elements whose bytes say everything, with the name of their type."""


def reduced_array(array: npt.NDArray[np.generic]) -> Reduced | NotImplementedType:
    """Return how an array is made again; NotImplemented if its bytes do not say."""
    kind = array.dtype
    order: Literal["C", "F"] = "F" if array.flags.fnc else "C"
    return (
        (stored_array, (kind.str, array.shape, order, array.tobytes(order)))
        if _is_plain(kind)
        else BY_PYTHON
    )


def stored_array(
    dtype: str, shape: tuple[int, ...], order: Literal["C", "F"], data: bytes
) -> npt.NDArray[np.generic]:
    """Return an array of its own, which may be written."""
    import numpy as np  # noqa: PLC0415 - see above

    array = np.ndarray(shape, _plain(np.dtype(dtype)), data, order=order)
    return array.copy("A")


def reduced_number(number: np.generic) -> Reduced | NotImplementedType:
    """Return how a number is made again; NotImplemented if its bytes do not say."""
    return (
        (stored_number, (number.dtype.str, number.tobytes()))
        if _is_plain(number.dtype)
        else BY_PYTHON
    )


def stored_number(dtype: str, data: bytes) -> np.generic:
    """Return the number; its type is that of NumPy."""
    import numpy as np  # noqa: PLC0415 - see above

    kind = _plain(np.dtype(dtype))
    if not kind.itemsize:  # an empty text
        return kind.type()
    number: np.generic = np.frombuffer(data, kind, 1)[0]
    return number


def _plain(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Refuse elements whose bytes are addresses: whoever wrote these would choose them."""
    if not _is_plain(dtype):
        msg = (
            f"a stored array has elements of type {dtype}, which are not stored as bytes; "
            "it was not written by Millstream"
        )
        raise SnapshotError(msg)
    return dtype


def _is_plain(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind in _PLAIN_KINDS and not dtype.hasobject and dtype.names is None
