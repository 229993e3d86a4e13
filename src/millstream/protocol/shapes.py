"""Whether a value that came over the network has the type that its field is declared with.

`checker` turns an annotation into a function once; nothing is looked up again per value.
It knows what control messages are made of - numbers, text, bytes, fixed and open tuples,
and choices of these - and no other types.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["checker"]

_EXACT = (bool, bytes, float, int, str, NoneType)


def checker(annotation: Any) -> Callable[[object], bool]:
    """Return a function that says whether a value fits an annotation.

    A whole number fits where a real one is declared; a truth value fits neither.

    Examples
    --------
    >>> fits = checker(tuple[tuple[int, str], ...])
    >>> fits(((1, "a"), (2, "b"))), fits(((1, 2),)), fits(())
    (True, False, True)
    >>> checker(int | None)(None), checker(int)(True), checker(float)(1)
    (True, False, True)
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        choices = [checker(part) for part in parts]
        return lambda value: any(fits(value) for fits in choices)
    if origin is tuple:
        return _open_tuple(parts[0]) if parts[-1] is ... else _fixed_tuple(parts)
    if annotation not in _EXACT:
        msg = f"a message cannot have a field of type {annotation}"
        raise TypeError(msg)
    allowed = (float, int) if annotation is float else (annotation,)
    return lambda value: type(value) in allowed


def _open_tuple(part: Any) -> Callable[[object], bool]:
    fits = checker(part)
    return lambda value: type(value) is tuple and all(map(fits, value))


def _fixed_tuple(parts: tuple[Any, ...]) -> Callable[[object], bool]:
    fitting = [checker(part) for part in parts]

    def fits(value: object) -> bool:
        if type(value) is not tuple or len(value) != len(fitting):
            return False
        return all(fits(item) for fits, item in zip(fitting, value, strict=True))

    return fits
