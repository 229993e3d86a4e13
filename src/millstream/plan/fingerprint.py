"""What an operator keeps, in words that a later version of the flow can be compared with.

The state of an operator is found by its name.  A *fingerprint* says what stands under the
name: what the operator does, what is kept in which types, and under which window, kind of
join or time to live.  It is stored with every snapshot; `millstream.launch.fitting` compares
it before anything is restored.

Every kind of operator says in its traits whether it keeps something, and in `kept_fields`
what; this module adds what follows from the operators around it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.plan.iteration import LoopHead, loop_position_name
from millstream.plan.logical import LOCAL
from millstream.plan.nodes import Read
from millstream.plan.projection import NarrowQuery
from millstream.plan.state_fields import Field, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.plan.logical import Node

__all__ = ["Fingerprint", "fingerprints"]

_NUMBER = re.compile(r"-\d+(?=$|\.)")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What an operator keeps.

    Attributes
    ----------
    does
        What it is, in a few words.
    family
        What its default name is made of; empty if the user named it.
    reads
        The nearest operators above it that keep something, sources among them.
    is_for_driver
        Whether what it keeps are the rows that came to the driver.
    """

    does: str
    fields: tuple[Field, ...]
    family: str = ""
    reads: tuple[str, ...] = ()
    is_for_driver: bool = False

    def plain(self) -> dict[str, tuple[str, ...]]:
        """Return it as a manifest stores it."""
        own = {field.name: field.values for field in self.fields}
        return {
            "does": (self.does,),
            "family": (self.family,),
            "reads": self.reads,
        } | own


def fingerprints(plan: Sequence[Node]) -> dict[str, Fingerprint]:
    """Return the fingerprints of all operators that keep something, by their names."""
    by_id = {node.id: node for node in plan}
    found = {}
    for node in plan:
        made = _own(node, by_id)
        if made is None:
            continue
        does, fields = made
        family = _NUMBER.sub("", node.name) if node.has_default_name else ""
        reads = tuple(sorted(_nearest(node, by_id)))
        found[node.name] = Fingerprint(
            does, fields, family, reads, node.spec.traits.is_for_driver
        )
        if isinstance(node.spec, LoopHead):
            place = loop_position_name(
                node.name, has_rounds=node.spec.iteration.has_rounds
            )
            found[place] = found[node.name]
    return found


def _own(node: Node, by_id: Mapping[int, Node]) -> tuple[str, tuple[Field, ...]] | None:
    """Return what a node does and what it keeps; None if it keeps nothing."""
    spec = node.spec
    if spec.traits.keeps:
        common = [Field.of("rows", "keyed")] if node.takes_pairs else []
        common += [Field.of("time", "event time")] if node.takes_times else []
        arriving = _arriving(node, by_id) if spec.traits.keeps_rows else None
        if arriving is not None:
            common.append(Field("columns that arrive", arriving, Rule.ANY_ORDER))
        return spec.traits.keeps, (*spec.kept_fields(), *common)
    function = getattr(spec, "function", None)
    if getattr(type(function), "is_remembering", False) is True:
        return node.verb, (Field.of("function", type(function).__qualname__),)
    return None


def _nearest(node: Node, by_id: Mapping[int, Node]) -> set[str]:
    """Return the names of the nearest operators above that keep something."""
    found: set[str] = set()
    ahead, seen = list(node.inputs), set()
    while ahead:
        number = ahead.pop()
        if number in seen:
            continue
        seen.add(number)
        above = by_id[number]
        is_own = above.name.endswith(LOCAL)
        if isinstance(above.spec, Read) or (
            not is_own and _own(above, by_id) is not None
        ):
            found.add(above.name)
        else:
            ahead += above.inputs
    return found


def _arriving(node: Node, by_id: Mapping[int, Node]) -> tuple[str, ...] | None:
    """Return the columns of rows where the planner has left some out, None for all."""
    above = by_id[node.inputs[0]]
    while True:
        spec = above.spec
        if isinstance(spec, Read):
            source: Any = spec.source
            return None if spec.column_count is None else tuple(source.schema)
        query = getattr(spec, "function", None)
        if isinstance(query, NarrowQuery) and query.columns is not None:
            return query.columns
        if not spec.traits.passes_columns:
            return None
        above = by_id[above.inputs[0]]
