"""Cut the plan into stages: chains of operators with no repartitioning inside.

These are the rules of rstream.md, section IV-A.1.  A new stage begins where rows are
regrouped, where the number of tasks changes, where a stream is read twice, and where
streams meet.  A source that exists once is a stage of its own, so that what follows
it runs on all workers; only what costs next to nothing stays with it, in its stage, or
in one of its own where somebody else reads the source too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.config import fixed
from millstream.errors import UsageError
from millstream.plan.frame_windows import AssignFrameTime
from millstream.plan.frames import JoinFrames
from millstream.plan.grouping import Gather, LocalOrShuffle, Shuffle
from millstream.plan.iteration import (
    BodyInput,
    Decide,
    LoopHead,
    LoopResult,
    Outlet,
    Port,
)
from millstream.plan.joins import has_whole_right
from millstream.plan.letters import may_send_letters
from millstream.plan.loops import back_edges, check_bodies, enclosing
from millstream.plan.nodes import DeadLetters, KeyBy, Merge, Read, Regroup, Zip
from millstream.plan.rewrite import rewrite
from millstream.plan.splits import with_splits
from millstream.plan.time import AssignTime, LateRows

if TYPE_CHECKING:
    from millstream.config import BufferPolicy, Config
    from millstream.plan.grouping import Grouping
    from millstream.plan.iteration import RoundState
    from millstream.plan.logical import LogicalPlan, Node
    from millstream.values import Value

__all__ = ["Edge", "Stage", "StagePlan", "plan_stages"]

_AT_ONCE = fixed(1)
"""Between heads and deciders, where a round waits for every message."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A chain of operators; `width` is the most tasks it may have.

    Attributes
    ----------
    loop_state
        The state of the iteration that it is in the body of, if it has one.
    is_free
        Whether it is in the body of a loop without rounds.
    """

    id: int
    nodes: tuple[Node, ...]
    width: int | None
    loop_state: RoundState[Value] | None = None
    is_free: bool = False

    @property
    def name(self) -> str:
        """Names of its first and last operator."""
        first, last = self.nodes[0].name, self.nodes[-1].name
        return first if len(self.nodes) == 1 else f"{first}…{last}"

    @property
    def is_source(self) -> bool:
        """Whether it reads a source."""
        return isinstance(self.nodes[0].spec, Read)


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows, or dead letters alone, from one stage to input `port` of another.

    Attributes
    ----------
    outlet
        Where the rows leave the source; only heads of iterations have several.
    is_back
        Whether it closes a loop.
    carries_rounds
        Whether both ends are in the body of an iteration, so that rounds end on it.
    exits_loop
        The head of the loop that it leads out of, as the id of a node.
    carries_time
        Whether its rows have timestamps, so that watermarks travel with them.
    carries_splits
        Whether it is told which splits of a source its rows come from.
    """

    id: int
    source: int
    target: int
    port: int
    grouping: Grouping
    buffer: BufferPolicy
    carries_letters: bool = False
    outlet: int = 0
    is_back: bool = False
    carries_rounds: bool = False
    exits_loop: int | None = None
    carries_time: bool = False
    carries_splits: bool = False


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The stages of a flow and the edges between them."""

    name: str
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]

    def inputs(self, stage: Stage) -> list[Edge]:
        """Return the edges into a stage."""
        return [edge for edge in self.edges if edge.target == stage.id]

    def outputs(self, stage: Stage) -> list[Edge]:
        """Return the edges out of a stage."""
        return [edge for edge in self.edges if edge.source == stage.id]


def plan_stages(plan: LogicalPlan, config: Config) -> StagePlan:
    """Cut a checked logical plan into stages."""
    check_bodies(plan.nodes)
    builder = _Builder(rewrite(plan), config)
    for node in builder.nodes:
        builder.place(node)
    for node in builder.nodes:
        builder.close_loops(node)
    builder.connect_sides()
    stages = tuple(
        builder.stage(number, tuple(chain), width)
        for number, (chain, width) in enumerate(
            zip(builder.chains, builder.widths, strict=True)
        )
    )
    _check_cycles(stages, builder.edges)
    return StagePlan(plan.name, stages, tuple(with_splits(stages, builder.edges)))


def _check_cycles(stages: tuple[Stage, ...], edges: list[Edge]) -> None:
    """Refuse cycles that do not go through the head of a loop."""
    forward = [edge for edge in edges if not edge.is_back]
    ends = [(edge.source, edge.target) for edge in forward]
    for place in back_edges(len(stages), ends):
        edge = forward[place]
        source, target = stages[edge.source], stages[edge.target]
        msg = (
            f"the output of {source.name!r} comes back to {target.name!r} without a "
            "loop between them, so that each would wait for the other; use loop, "
            "iterate or cycle"
        )
        raise UsageError(msg)


class _Builder:
    def __init__(self, nodes: list[Node], config: Config) -> None:
        self.nodes = nodes
        self.chains: list[list[Node]] = []
        self.widths: list[int | None] = []
        self.edges: list[Edge] = []
        self._config = config
        self._by_id = {node.id: node for node in nodes}
        self._stage_of: dict[int, int] = {}
        self._readers: dict[int, int] = {}
        self._enclosing = enclosing(nodes)
        for node in nodes:
            for source in (*node.inputs, *node.back):
                self._readers[source] = self._readers.get(source, 0) + 1

    def place(self, node: Node) -> None:
        """Append the node to its input's stage, or begin a stage with it."""
        if self._can_chain(node):
            stage = self._stage_of[node.inputs[0]]
            self.chains[stage].append(node)
        else:
            stage = len(self.chains)
            self.chains.append([node])
            self.widths.append(self._width(node))
            for port, source in enumerate(node.inputs):
                self._connect(self._by_id[source], node, stage, port)
            if isinstance(node.spec, DeadLetters):
                self._connect_letters(stage)
        self._stage_of[node.id] = stage

    def close_loops(self, head: Node) -> None:
        """Connect what comes back to the head of a loop, now that it has a stage."""
        for source in head.back:
            above = self._by_id[source]
            is_decision = isinstance(above.spec, Decide)
            port = Port.DECISIONS if is_decision else Port.RETURNED
            self._connect(above, head, self._stage_of[head.id], port)

    def connect_sides(self) -> None:
        """Let deciders know when what comes from outside into the rounds has ended.

        Only outermost loops have such sides: one of an inner loop is theirs as well.
        """
        known: set[tuple[int, int]] = set()
        for edge in list(self.edges):
            decider = self._decider_over(edge)
            if decider is not None and (edge.source, decider) not in known:
                known.add((edge.source, decider))
                self._connect_end(edge.source, decider)

    def _decider_over(self, edge: Edge) -> int | None:
        """Return the stage that decides over the loop to which an edge brings a side."""
        above, node = self.chains[edge.source][-1], self.chains[edge.target][0]
        loops = self._enclosing[node.id]
        if not loops or loops[0] in (above.id, *self._enclosing[above.id]):
            return None
        head = self._by_id[loops[0]]
        assert isinstance(head.spec, LoopHead)
        if not head.spec.iteration.has_rounds:
            return None
        (decider,) = (i for i in head.back if isinstance(self._by_id[i].spec, Decide))
        return self._stage_of[decider]

    def _connect_end(self, source: int, decider: int) -> None:
        edge = Edge(
            id=len(self.edges),
            source=source,
            target=decider,
            port=Port.SIDES,
            grouping=Gather(),
            buffer=_AT_ONCE,
            outlet=Outlet.END,
        )
        self.edges.append(edge)

    def stage(self, number: int, chain: tuple[Node, ...], width: int | None) -> Stage:
        """Return a stage that knows which loop it is in."""
        loops = self._enclosing[chain[0].id]
        if not loops:
            return Stage(number, chain, width)
        spec = self._by_id[loops[-1]].spec
        assert isinstance(spec, LoopHead)
        is_free = not spec.iteration.has_rounds
        return Stage(number, chain, width, spec.iteration.state, is_free)

    def _can_chain(self, node: Node) -> bool:
        is_meeting = isinstance(node.spec, Merge | Zip | LoopHead | LateRows)
        if len(node.inputs) != 1 or is_meeting:
            return False
        above = self._by_id[node.inputs[0]]
        if above.regroups is not None or self._readers[above.id] > 1:
            return False
        if self._is_single_source(above) and not _stays_with_source(node):
            return False
        width = self.widths[self._stage_of[above.id]]
        return node.width is None or (width is not None and width <= node.width)

    def _width(self, node: Node) -> int | None:
        """Return the most tasks of a stage that begins with `node`."""
        if isinstance(node.spec, LoopHead):
            return None
        inputs = node.inputs
        if self._stays(node):
            return self.widths[self._stage_of[inputs[0]]]
        if isinstance(node.spec, JoinFrames) or has_whole_right(node.spec):
            inputs = inputs[:1]
        kept = [
            self.widths[self._stage_of[source]]
            for source in inputs
            if self._keeps_rows_in_place(self._by_id[source])
        ]
        if len(kept) < len(inputs) or not kept or None in kept:
            return node.width
        widest = max(width for width in kept if width is not None)
        return widest if node.width is None else min(widest, node.width)

    def _stays(self, node: Node) -> bool:
        """Whether an operator has but the task of the single source that it reads."""
        is_behind_it = len(node.inputs) == 1 and self._is_single_source(
            self._by_id[node.inputs[0]]
        )
        return is_behind_it and _stays_with_source(node)

    def _keeps_rows_in_place(self, above: Node) -> bool:
        return above.regroups is None and not self._is_single_source(above)

    def _is_single_source(self, node: Node) -> bool:
        """Whether an operator reads a source that exists once, or gives it time."""
        while isinstance(node.spec, AssignTime):
            node = self._by_id[node.inputs[0]]
        return isinstance(node.spec, Read) and not node.spec.source.is_parallel

    def _connect(self, above: Node, node: Node, stage: int, port: int) -> None:
        source = self._stage_of[above.id]
        is_control = port == Port.DECISIONS or _outlet(above, node) == Outlet.DECIDER
        is_back = above.id in node.back
        has_no_time = is_control or is_back or isinstance(node.spec, LateRows)
        edge = Edge(
            id=len(self.edges),
            source=source,
            target=stage,
            port=port,
            grouping=above.regroups or self._grouping(source, stage),
            buffer=_AT_ONCE if is_control else self._policy(source),
            outlet=_outlet(above, node),
            is_back=is_back,
            carries_rounds=self._carries_rounds(above, node) and not is_control,
            exits_loop=self._left_loop(above, node),
            carries_time=above.makes_times and not has_no_time,
        )
        self.edges.append(edge)

    def _carries_rounds(self, above: Node, node: Node) -> bool:
        """Whether a round of an iteration ends on the way between two operators."""
        if isinstance(node.spec, Decide) or above.id in node.back:
            return True
        loops = self._enclosing[node.id]
        if isinstance(node.spec, BodyInput):
            return bool(loops) and loops[-1] == above.id
        return bool(loops) and loops[-1] in self._enclosing[above.id]

    def _left_loop(self, above: Node, node: Node) -> int | None:
        """Return the head of the loop that ends between two operators, if one does."""
        if isinstance(node.spec, LoopResult):
            return above.id
        if isinstance(node.spec, Decide) or above.id in node.back:
            return None
        left = set(self._enclosing[above.id]) - set(self._enclosing[node.id])
        return min(left, default=None)

    def _connect_letters(self, stage: int) -> None:
        """Bring the letters of all stages before this one together."""
        sending = [s for s in range(stage) if may_send_letters(self.chains[s])]
        for port, source in enumerate(sending):
            edge = Edge(
                id=len(self.edges),
                source=source,
                target=stage,
                port=port,
                grouping=Gather(),
                buffer=self._config.buffer,
                carries_letters=True,
            )
            self.edges.append(edge)

    def _policy(self, source: int) -> BufferPolicy:
        """Return the policy that was set last in a stage, or the flow's."""
        chain = self.chains[source]
        policies = [node.buffer for node in chain if node.buffer]
        if policies:
            return policies[-1]
        if not chain[-1].makes_frames:
            return self._config.buffer
        policy = self._config.frame_buffer
        if isinstance(chain[-1].spec, LoopHead):
            # What it holds is as long as it should be, and not cut again in every round.
            policy = replace(policy, rows=self._config.frame_rows_max)
        return policy

    def _grouping(self, source: int, target: int) -> Grouping:
        source_width, target_width = self.widths[source], self.widths[target]
        if target_width == 1:
            return Gather()
        is_wider = source_width is not None and (
            target_width is None or target_width > source_width
        )
        return Shuffle() if is_wider else LocalOrShuffle()


def _outlet(above: Node, node: Node) -> int:
    """Return where what a node reads leaves the node above."""
    if isinstance(node.spec, LateRows):
        return Outlet.LATE
    if not isinstance(above.spec, LoopHead):
        return 0
    if isinstance(node.spec, LoopResult):
        return Outlet.RESULT
    return Outlet.DECIDER if isinstance(node.spec, Decide) else Outlet.BODY


def _only_moves(node: Node) -> bool:
    return isinstance(node.spec, Regroup) and node.regroups is not None


def _stays_with_source(node: Node) -> bool:
    """Whether an operator behind a single source need not run on all workers.

    Keys are computed right there: rows then move once, not twice, and those of a key
    stay in order.  So are timestamps, which say the more the nearer to the source.
    """
    is_narrow = node.width == 1 or node.is_sink
    is_cheap = isinstance(node.spec, KeyBy | AssignTime | AssignFrameTime)
    return is_narrow or is_cheap or _only_moves(node)
