"""Whether a value that came over the network has the type that its field is declared with.

`checker`, `maker` and `unmaker` turn an annotation into a function once; nothing is looked up again
per value.  They know what control messages are made of - numbers, text, bytes, fixed and
open tuples, dataclasses of these in the order of their fields, and choices - and no other
types.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import GenericAlias

    Form = type | UnionType | GenericAlias
    """An annotation: a class, a choice, or a tuple of forms."""

    Step = Callable[[Any], Any]
    """What is done to a value of a form that was checked."""

__all__ = ["checker", "maker", "unmaker"]

_EXACT = (bool, bytes, float, int, str, NoneType)


def checker(annotation: Form) -> Callable[[object], bool]:
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
    if is_dataclass(annotation):
        return _fixed_tuple(tuple(get_type_hints(annotation).values()))
    if annotation not in _EXACT:
        msg = f"a message cannot have a field of type {annotation}"
        raise TypeError(msg)
    allowed = (float, int) if annotation is float else (annotation,)
    return lambda value: type(value) in allowed


def maker(annotation: Form) -> Step:
    """Return a function that makes what is declared of a value that fits.

    A dataclass is made of the tuple of its fields; all else is what it is.

    Examples
    --------
    >>> maker(tuple[int, ...])((1, 2))
    (1, 2)
    """

    def of_fields(kind: type, makes: list[Step]) -> Step:
        return lambda value: kind(*[m(v) for m, v in zip(makes, value, strict=True)])

    return _through(annotation, of_fields)


def unmaker(annotation: Form) -> Step:
    """Return a function that makes plain values again of what `maker` makes.

    Examples
    --------
    >>> unmaker(tuple[int, ...] | None)((1, 2))
    (1, 2)
    """

    def of_fields(kind: type, plain: list[Step]) -> Step:
        steps = list(zip(get_type_hints(kind), plain, strict=True))
        return lambda value: tuple([p(getattr(value, name)) for name, p in steps])

    return _through(annotation, of_fields)


def _through(
    annotation: Form,
    of_fields: Callable[[type, list[Step]], Step],
) -> Step:
    """Return what is done to a value, given what is done to the fields of dataclasses."""
    if not _has_dataclass(annotation):
        return _as_it_is
    if is_dataclass(annotation):
        forms = get_type_hints(annotation).values()
        return of_fields(annotation, [_through(form, of_fields) for form in forms])
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        (kind,) = [part for part in parts if part is not NoneType]
        one = _through(kind, of_fields)
        return lambda value: None if value is None else one(value)
    if origin is not tuple or parts[-1] is not ...:
        msg = f"a message cannot have a dataclass inside of {annotation}"
        raise TypeError(msg)
    each = _through(parts[0], of_fields)
    return lambda value: tuple(map(each, value))


def _has_dataclass(annotation: Form) -> bool:
    return is_dataclass(annotation) or any(map(_has_dataclass, get_args(annotation)))


def _as_it_is(value: object) -> object:
    return value


def _open_tuple(part: Form) -> Callable[[object], bool]:
    fits = checker(part)
    return lambda value: type(value) is tuple and all(map(fits, value))


def _fixed_tuple(parts: tuple[Form, ...]) -> Callable[[object], bool]:
    fitting = [checker(part) for part in parts]

    def fits(value: object) -> bool:
        if type(value) is not tuple or len(value) != len(fitting):
            return False
        return all(fits(item) for fits, item in zip(fitting, value, strict=True))

    return fits
