"""What an operator keeps, field by field, in words that another version can be compared with.

A field has a name, values as text, and a rule that says which change of them leaves the
state right.  Functions cannot be compared, so none is in a field.  Nothing here imports
Polars; types are written as they call themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from millstream.columns.table import FrameAggregation
    from millstream.plan.aggregate import Aggregate

__all__ = ["FOR_EVER", "Field", "Rule", "aggregate_fields", "aggregation_fields"]

FOR_EVER = "for ever"
_COMPARABLE = (int, float, str, bytes, bool, type(None))


class Rule(Enum):
    """Which change of a field leaves the state right."""

    SAME = auto()
    """None."""
    ANY_ORDER = auto()
    """Another order."""
    FEWER = auto()
    """Another order, and some less: what is not asked for any more is left out."""
    MORE = auto()
    """Another order, and some more: they begin empty."""
    LONGER = auto()
    """A longer time."""
    FREE = auto()
    """Any: it holds from now on."""


@dataclass(frozen=True, slots=True)
class Field:
    """Something about the state of an operator.

    Examples
    --------
    >>> Field.of("how", "left").values, Field.span("ttl", None).values
    (('left',), ('for ever',))
    """

    name: str
    values: tuple[str, ...]
    rule: Rule = Rule.SAME

    @classmethod
    def of(cls, name: str, value: object, rule: Rule = Rule.SAME) -> Field:
        """Return a field of one value, as text."""
        return cls(name, (str(value),), rule)

    @classmethod
    def span(cls, name: str, milliseconds: int | None, rule: Rule = Rule.SAME) -> Field:
        """Return a field of a duration; None is for ever."""
        value = FOR_EVER if milliseconds is None else f"{milliseconds} ms"
        return cls(name, (value,), rule)

    @classmethod
    def columns(
        cls, name: str, schema: pl.Schema | None, rule: Rule = Rule.SAME
    ) -> Field:
        """Return a field of columns and their types."""
        known = {} if schema is None else schema
        return cls(name, tuple(f"{name}: {kind}" for name, kind in known.items()), rule)

    @classmethod
    def constant(cls, name: str, value: object) -> Field:
        """Compare plain values by what they are, and others by their type."""
        is_plain = type(value) in _COMPARABLE
        return cls.of(
            name, repr(value) if is_plain else f"a {type(value).__qualname__}"
        )


def aggregate_fields(aggregate: Aggregate | None) -> Iterable[Field]:
    """Yield what an aggregate of rows keeps; None keeps the rows."""
    if aggregate is None:
        yield Field.of("aggregate", "none, all values")
    elif aggregate.kind is not None:
        yield Field.of("aggregate", aggregate.kind)
    else:
        yield Field.of("aggregate", f"{aggregate.name} with functions")
        yield Field.constant("begins with", aggregate.empty)


def aggregation_fields(
    aggregation: FrameAggregation, rule: Rule = Rule.ANY_ORDER
) -> Iterable[Field]:
    """Yield what an aggregation of frames keeps."""
    yield Field("keys", tuple(aggregation.key_kinds))
    yield Field("keeps", tuple(aggregation.kept), rule)
