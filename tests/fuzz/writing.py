"""Programs as Python source, which is also how they are run: what is shown is what ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fuzz.catalogue import VERBS
from tests.fuzz.verbs import PRELUDE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz.programs import Program, Step

    import millstream as ms

__all__ = ["built", "written"]

FLOW = "fuzzed"


def written(program: Program, function: str = "build") -> str:
    """Return a function that makes the flow and the handles of its sinks by name."""
    lines = [f"def {function}(out):", f"    flow = ms.Flow({FLOW!r})"]
    lines += [f"    {step.name} = {_written(step)}" for step in program.steps]
    sinks = [s.name for s in program.steps if VERBS[s.verb].is_sink]
    handles = ", ".join(f"{name!r}: {name}" for name in sinks)
    return "\n".join([*lines, f"    return flow, {{{handles}}}", ""])


def _written(step: Step) -> str:
    return VERBS[step.verb].text(step.name, *step.inputs, *step.arguments)


def built(program: Program, out: Path) -> tuple[ms.Flow, dict[str, Any]]:
    """Return the flow of a program and its handles; `out` is where files go."""
    names: dict[str, Any] = {"__name__": "fuzzed_program"}
    code = compile(PRELUDE + "\n\n" + written(program), "fuzzed_program.py", "exec")
    exec(code, names)
    flow, handles = names["build"](out)
    return flow, handles
