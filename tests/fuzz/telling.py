"""A failure as a script that shows it: the programs, how they are run, what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.running import TIGHT
from tests.fuzz.verbs import PRELUDE
from tests.fuzz.writing import written

if TYPE_CHECKING:
    from tests.fuzz.scenarios import Leg, Scenario

__all__ = ["told"]

_IMPORTS = """\
from pathlib import Path
from tempfile import mkdtemp

from millstream.testing import manual_time, simulate
from tests.fuzz.ticking import TickingClock
"""

_RUN = """\


def run(build, workers, stop, tick_ns, **options):
    flow, handles = build(place / "out")
    clock = TickingClock(tick_ns, stop)
    with manual_time(clock):
        job = flow.start(
            workers=workers, state=place / "state", snapshot_every="1ms",
            {settings}, **options,
        )
    clock.watch(job)
    try:
        job.wait()
    except ms.JobCancelledError:
        print("stopped after epoch", job.epoch)
    else:
        for name, handle in handles.items():
            print(name, handle.result() if handle else sorted(place.rglob("part*")))


place = Path(mkdtemp())
"""


def told(scenario: Scenario, problem: str) -> str:
    """Return Python source that repeats the failure, run from the repository."""
    lines = [f"# {line}" for line in problem.splitlines()]
    lines += [_IMPORTS + PRELUDE]
    builders: dict[object, str] = {}
    for leg in scenario.legs:
        if leg.program not in builders:
            builders[leg.program] = f"build_{len(builders)}"
            lines += ["", written(leg.program, builders[leg.program])]
    if scenario.launcher == "simulator":
        seed = scenario.seed
        lines.append(
            f'flow, _ = build_0(Path("out"))\nsimulate(flow, seed={seed}, snapshots=True)'
        )
    else:
        settings = ", ".join(f"{name}={_value(v)}" for name, v in TIGHT.items())
        lines.append(_RUN.format(settings=settings))
        lines += [_told(leg, builders[leg.program]) for leg in scenario.legs]
    if scenario.launcher == "processes":
        lines.append('# (there with on="processes" and a clock that runs)')
    return "\n".join([*lines, "", f"# {scenario}", ""])


def _value(value: object) -> str:
    return "ms.fixed(2)" if value == TIGHT["buffer"] else repr(value)


def _told(leg: Leg, builder: str) -> str:
    rows = leg.batch_rows
    options = (
        f"source_batch_rows={rows}, frame_buffer=ms.fixed({rows}), "
        f"drop_state={leg.drops}"
    )
    beside = f"  # beside it another one, {leg.beside}" if leg.beside else ""
    return (
        f"run({builder}, workers={leg.workers}, stop={leg.stop}, "
        f"tick_ns={leg.tick_ns}, {options}){beside}"
    )
