"""Make the small parts that tests of the engine need: nodes, edges, channels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.config import BufferPolicy, Config, fixed
from millstream.operators.build import TaskContext, build_chain
from millstream.plan.grouping import Gather
from millstream.plan.logical import Location, Node
from millstream.plan.physical import Channel
from millstream.plan.stages import Edge
from millstream.protocol.ids import ChannelId
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.plan.grouping import Grouping
    from millstream.plan.spec import Spec
    from millstream.runtime.channels import InputChannel

__all__ = [
    "channel",
    "cut",
    "drained",
    "edge",
    "node",
    "nodes",
    "operators",
    "taken_batches",
]

HERE = Location("job.py", 1)


def node(spec: Spec, number: int = 0, **attributes: Any) -> Node:
    """Return an operator of the plan, named after its number."""
    verb = type(spec).__name__.lower()
    location = Location("job.py", number + 1)
    return Node(number, f"{verb}-{number}", verb, spec, (), location, **attributes)


def nodes(specs: Sequence[Spec], **attributes: bool) -> tuple[Node, ...]:
    """Return a chain of operators; only the first says what rows come with."""
    return tuple(
        node(spec, number, **(attributes if number == 0 else {}))
        for number, spec in enumerate(specs)
    )


def operators(
    specs: Sequence[Spec],
    config: Config | None = None,
    emitted: list[Any] | None = None,
) -> list[Any]:
    """Return the operators that a task would run for a chain."""

    def emit(_sink: int, rows: list[Any]) -> None:
        if emitted is not None:
            emitted.extend(rows)

    context = TaskContext("job", 0, config or Config(), emit, clock=ManualClock())
    return build_chain(nodes(specs), context)


def drained(operator: Any, batches: Iterable[list[Any]]) -> list[Any]:
    """Return everything that an operator makes of the batches, to its end."""
    rows = [row for batch in batches for row in operator.process(batch)]
    rows += [row for batch in operator.finish() for row in batch]
    operator.close()
    return rows


def cut(rows: list[Any], sizes: Iterable[int]) -> list[list[Any]]:
    """Cut rows into batches of these sizes, and the rest into one more."""
    batches, start = [], 0
    for size in sizes:
        batches.append(rows[start : start + size])
        start += size
    return [batch for batch in (*batches, rows[start:]) if batch]


def edge(grouping: Grouping | None = None, buffer: BufferPolicy | None = None) -> Edge:
    """Return the edge from stage 0 to stage 1."""
    return Edge(0, 0, 1, 0, grouping or Gather(), buffer or fixed(4))


def channel(
    number: int = 0,
    *,
    target: int = 0,
    grouping: Grouping | None = None,
    buffer: BufferPolicy | None = None,
    carries_splits: bool = False,
) -> Channel:
    """Return a channel of that edge."""
    own = replace(edge(grouping, buffer), carries_splits=carries_splits)
    return Channel(ChannelId(number), own, 0, target)


def taken_batches(reader: InputChannel) -> list[list[Any]]:
    """Return all batches that wait at the end of a channel, and no marks."""
    elements = [reader.take() for _ in range(len(reader))]
    return [element for element in elements if isinstance(element, list)]
