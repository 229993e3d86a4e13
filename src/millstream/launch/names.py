"""Names that end up in the names of files: those of jobs, sources and sinks.

A job's id is made of the flow's name, cut to what every file system takes.  Names of
sources and sinks find state again and cannot be cut, so those that are too long are
refused.  What is stored under a name is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from millstream.errors import UsageError
from millstream.plan.nodes import Read, Write

if TYPE_CHECKING:
    from millstream.plan.logical import LogicalPlan

__all__ = ["check_names", "job_prefix"]

_JOB_BYTES_MAX = 64
_NAME_BYTES_MAX = 100
"""As they are quoted; with the rest of a file's name they stay below 255."""
_SHOWN_LETTERS = 40


def job_prefix(flow: str) -> str:
    """Return a flow's name with what does not belong in a file name replaced.

    Examples
    --------
    >>> job_prefix("word count/../2")
    'word-count----2'
    """
    cleaned = "".join(c if c.isalnum() or c in "-_" else "-" for c in flow)
    if not cleaned:
        msg = "a flow needs a name; write Flow('my-flow')"
        raise UsageError(msg)
    cleaned = cleaned[:_JOB_BYTES_MAX]
    while len(quote(cleaned, safe="")) > _JOB_BYTES_MAX:
        cleaned = cleaned[:-1]
    return cleaned


def check_names(plan: LogicalPlan) -> None:
    """Refuse names of sources and sinks that no file can be named after."""
    for node in plan.nodes:
        length = len(quote(node.name, safe=""))
        if isinstance(node.spec, Read | Write) and length > _NAME_BYTES_MAX:
            msg = (
                f"the name {node.name[:_SHOWN_LETTERS]!r}... of {node.verb} at "
                f"{node.location} takes {length} letters in the name of a file, and there "
                f"may be {_NAME_BYTES_MAX}; give it a shorter name="
            )
            raise UsageError(msg)
