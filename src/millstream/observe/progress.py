"""One line about a running job, made from two samples of its counters.

Pure text from numbers: who takes the samples, when, and where the line is shown is
somebody else's business.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Sample", "StageSample", "progress_line", "summary_line"]

_MINUTE_S = 60
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class StageSample:
    """Counters of one stage since its start, added up over its tasks."""

    name: str
    is_source: bool
    tasks: int
    rows_in: int
    busy_s: float
    blocked_s: float
    #: How many rounds of an iteration it has decided over, and by what in the last.
    rounds: tuple[int, float | str] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of all stages at a moment, in seconds since the start."""

    at_s: float
    stages: tuple[StageSample, ...]

    @property
    def rows_read(self) -> int:
        """Rows that the sources have given so far."""
        return sum(stage.rows_in for stage in self.stages if stage.is_source)


def progress_line(name: str, before: Sample, now: Sample) -> str:
    """Return rows, rate, back-pressure and bottleneck between two samples.

    Examples
    --------
    >>> def stages(rows, busy_s, blocked_s):
    ...     read = StageSample("read_text", True, 2, rows, 0.1, blocked_s)
    ...     return (read, StageSample("count", False, 2, rows, busy_s, 0.0))
    >>> before = Sample(1.0, stages(50_000, 0.5, 0.2))
    >>> now = Sample(2.0, stages(150_000, 2.3, 1.4))
    >>> progress_line("words", before, now)
    'words · 150,000 rows · 100,000 rows/s · back-pressure 60 % · busiest count · 2 s'
    """
    past_s = now.at_s - before.at_s
    parts = [name, _rows(now.rows_read)]
    if past_s > 0 and len(before.stages) == len(now.stages):
        parts.append(_rate(now.rows_read - before.rows_read, past_s))
        parts.append(f"back-pressure {100 * _back_pressure(before, now, past_s):.0f} %")
        busiest = _bottleneck(before, now)
        if busiest:
            parts.append(f"busiest {busiest}")
    parts += _rounds(now)
    return " · ".join([*parts, _duration(now.at_s)])


def summary_line(name: str, status: str, last: Sample) -> str:
    """Return what there is to say when the job has ended.

    Examples
    --------
    >>> read = StageSample("read_text", True, 1, 9_000, 0.1, 0.0)
    >>> summary_line("words", "succeeded", Sample(1.5, (read,)))
    'words · succeeded · 9,000 rows · 6,000 rows/s · 1.5 s'
    """
    parts = [name, status, _rows(last.rows_read)]
    if last.at_s > 0:
        parts.append(_rate(last.rows_read, last.at_s))
    return " · ".join([*parts, _duration(last.at_s, digits=1)])


def _back_pressure(before: Sample, now: Sample, past_s: float) -> float:
    """Return the share of the time that the most blocked stage could not send."""
    shares = [
        (new.blocked_s - old.blocked_s) / (past_s * max(new.tasks, 1))
        for old, new in zip(before.stages, now.stages, strict=True)
    ]
    return min(max([0.0, *shares]), 1.0)


def _bottleneck(before: Sample, now: Sample) -> str:
    """Return the stage whose tasks were the busiest; nothing if none worked."""
    shares = {
        new.name: (new.busy_s - old.busy_s) / max(new.tasks, 1)
        for old, new in zip(before.stages, now.stages, strict=True)
    }
    busiest = max(shares, key=lambda name: shares[name], default="")
    return busiest if shares.get(busiest, 0.0) > 0 else ""


def _rounds(now: Sample) -> list[str]:
    """Return how far iterations have come; where there are several, by name."""
    iterating = [(s.name, *s.rounds) for s in now.stages if s.rounds]
    return [
        f"{f'{name} ' if len(iterating) > 1 else ''}{_round(done, value)}"
        for name, done, value in iterating
    ]


def _round(done: int, value: float | str) -> str:
    shown = f"{value:.6g}" if isinstance(value, float) else value
    return f"round {done:,}: {shown}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _rate(rows: int, past_s: float) -> str:
    return f"{max(rows, 0) / past_s:,.0f} rows/s"


def _duration(past_s: float, digits: int = 0) -> str:
    if past_s < _MINUTE_S:
        return f"{past_s:.{digits}f} s"
    whole = int(past_s)
    minutes, seconds = divmod(whole % _HOUR_S, _MINUTE_S)
    if whole < _HOUR_S:
        return f"{minutes}:{seconds:02} min"
    return f"{whole // _HOUR_S}:{minutes:02}:{seconds:02} h"
