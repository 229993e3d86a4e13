"""Show a plan to people: as text in three parts, and as a Mermaid diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.iteration import Decide, LoopHead, Outlet
from millstream.plan.physical import lay_out
from millstream.plan.text_steps import text_splits

if TYPE_CHECKING:
    from millstream.plan.logical import LogicalPlan, Node
    from millstream.plan.stages import Edge, Stage, StagePlan

__all__ = ["explain_mermaid", "explain_text"]

_ROUND_AGAIN = "round again"


def explain_text(plan: LogicalPlan, stages: StagePlan, workers: int) -> str:
    """Return the logical plan, the stages, and the tasks on `workers` workers."""
    sections = [
        [f"flow {plan.name!r}", "", "logical plan"],
        [f"  {_operator_line(plan, node)}" for node in plan.nodes],
        ["", "stages"],
        [line for stage in stages.stages for line in _stage_lines(stages, stage)],
        ["", f"tasks on {workers} worker{'s' if workers != 1 else ''}"],
        _task_lines(stages, workers),
    ]
    return "\n".join(line for section in sections for line in section) + "\n"


def explain_mermaid(stages: StagePlan) -> str:
    """Return the stages as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for stage in stages.stages:
        title = f"stage {stage.id} · {_width(stage)}"
        lines.append(f"  subgraph stage{stage.id}[{_quoted(title)}]")
        names = [f"n{node.id}[{_quoted(_label(node))}]" for node in stage.nodes]
        lines += [f"    {' --> '.join(names)}", "  end"]
    for edge in stages.edges:
        source = stages.stages[edge.source].nodes[-1].id
        target = stages.stages[edge.target].nodes[0].id
        lines.append(f"  n{source} {_arrow(stages, edge)} n{target}")
    return "\n".join(lines) + "\n"


def _arrow(stages: StagePlan, edge: Edge) -> str:
    """Return the arrow of an edge: thick where rows go round, dotted without rows."""
    if told := _told(stages, edge):
        return f"-.->|{told}|"
    if edge.is_back:
        return f"==>|{_ROUND_AGAIN}, {edge.grouping}|"
    return f"-->|{'dead letters' if edge.carries_letters else edge.grouping}|"


def _told(stages: StagePlan, edge: Edge) -> str:
    """Return what heads and deciders are told on an edge; "" if it has rows."""
    if edge.outlet == Outlet.END:
        return "end"
    source, target = (stages.stages[i].nodes for i in (edge.source, edge.target))
    if isinstance(source[0].spec, Decide):
        return "decisions"
    is_ready = isinstance(source[-1].spec, LoopHead) and isinstance(
        target[0].spec, Decide
    )
    return "ready" if is_ready else ""


def _quoted(text: str) -> str:
    """Return a label in which Mermaid reads no syntax."""
    return '"' + text.replace('"', "#quot;") + '"'


def _operator_line(plan: LogicalPlan, node: Node) -> str:
    names = {other.id: other.name for other in plan.nodes}
    sources = ", ".join(names[i] for i in node.inputs)
    arrow = f" <- {sources}" if sources else ""
    again = [names[i] for i in node.back if not isinstance(plan.nodes[i].spec, Decide)]
    if again:
        arrow += f", {_ROUND_AGAIN}: {', '.join(again)}"
    verb = f" ({node.verb})" if node.verb != node.name else ""
    regrouped = f" [{node.regroups}]" if node.regroups is not None else ""
    return f"{node.name}{verb}{regrouped}{arrow}  at {node.location}"


def _stage_lines(stages: StagePlan, stage: Stage) -> list[str]:
    pieces = {node.id for split in text_splits(stage.nodes) for node in split.nodes}
    chain = " -> ".join(
        f"{_label(node)} (as tokens)" if node.id in pieces else _label(node)
        for node in stage.nodes
    )
    lines = [f"  stage {stage.id} ({_width(stage)}): {chain}"]
    lines += [f"    {_edge(stages, edge)}" for edge in stages.outputs(stage)]
    return lines


def _edge(stages: StagePlan, edge: Edge) -> str:
    if edge.carries_letters:
        return f"-> stage {edge.target}: dead letters"
    if told := _told(stages, edge):
        return f"-> stage {edge.target}: {told}"
    again = f", {_ROUND_AGAIN}," if edge.is_back else ""
    return f"-> stage {edge.target}{again} by {edge.grouping}, {edge.buffer}"


def _task_lines(stages: StagePlan, workers: int) -> list[str]:
    plan = lay_out(stages, workers)
    lines = []
    for worker in range(workers):
        tasks = [
            f"{stage.id}.{worker}"
            for stage in stages.stages
            if worker < plan.task_count(stage)
        ]
        lines.append(f"  worker {worker}: tasks {', '.join(tasks)}")
    remote = sum(c.source_index != c.target_index for c in plan.channels)
    local = len(plan.channels) - remote
    lines.append(f"  channels: {local} within a worker, {remote} between workers")
    return lines


def _width(stage: Stage) -> str:
    if stage.width is None:
        return "one task per worker"
    return "1 task" if stage.width == 1 else f"at most {stage.width} tasks"


def _label(node: Node) -> str:
    """Return the name of an operator, with what the planner did to it."""
    detail = node.spec.detail()
    return f"{node.name} ({detail})" if detail else node.name
