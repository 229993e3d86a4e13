"""Run a user's file as the main program, and find the flow in it.

A job file is executed as ``__main__``, as ``python job.py`` would, so that the functions
in it are pickled by value and classes in it can be found while the command lasts.
Nothing here knows where the flow will run.
"""

from __future__ import annotations

import difflib
import sys
from contextlib import contextmanager, redirect_stdout
from types import ModuleType
from typing import TYPE_CHECKING

from millstream.api.flow import Flow
from millstream.errors import UsageError
from millstream.launch.options import intercept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["JobFile", "taken_flow"]


class JobFile:
    """A user's program, standing in for ``__main__``."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(_missing(path))
        self.path = path.resolve()
        self._module = ModuleType("__main__")
        self._module.__file__ = str(self.path)

    @contextmanager
    def as_main(self, arguments: Sequence[str]) -> Iterator[None]:
        """Be ``__main__``, with its arguments and its directory on the path."""
        before = sys.modules["__main__"], sys.argv, list(sys.path)
        sys.modules["__main__"] = self._module
        sys.argv = [str(self.path), *arguments]
        sys.path.insert(0, str(self.path.parent))
        try:
            yield
        finally:
            sys.modules["__main__"], sys.argv, sys.path[:] = before

    def execute(self) -> None:
        """Run the file from its first line to its last."""
        code = compile(self.path.read_bytes(), self.path, "exec", dont_inherit=True)
        exec(code, vars(self._module))  # noqa: S102 - the user asked for it

    def only_flow(self) -> Flow:
        """Return the flow at module level."""
        named = {
            name: v for name, v in vars(self._module).items() if isinstance(v, Flow)
        }
        flows = list({id(flow): flow for flow in named.values()}.values())
        if not flows:
            msg = (
                f"{self.path.name} starts no flow and defines none; call flow.run(), or "
                "leave a Flow in a variable at module level"
            )
            raise UsageError(msg)
        if len(flows) > 1:
            msg = (
                f"{self.path.name} starts no flow and defines {len(flows)} of them "
                f"({', '.join(named)}); call .run() on the ones to run"
            )
            raise UsageError(msg)
        return flows[0]


class _Taken(BaseException):
    """Ends a script at the point where it would start its flow."""


@contextmanager
def taken_flow(path: Path, arguments: Sequence[str]) -> Iterator[Flow]:
    """Give the flow that a file would start first, else the one it defines.

    The file stays the main program meanwhile.  What it prints goes to standard error:
    the result of the command has standard output for itself.
    """
    taken: list[Flow] = []

    def take(flow: Flow) -> None:
        taken.append(flow)
        raise _Taken

    file = JobFile(path)
    with file.as_main(arguments):
        try:
            with intercept(take), redirect_stdout(sys.stderr):
                file.execute()
        except _Taken:
            pass
        except SystemExit as end:
            if end.code:
                raise
        yield taken[0] if taken else file.only_flow()


def _missing(path: Path) -> str:
    if path.is_dir():
        return (
            f"{str(path)!r} is a directory; name the Python file that builds the flow"
        )
    near = [other.name for other in path.parent.glob("*.py")]
    guess = difflib.get_close_matches(path.name, near, n=1)
    hint = f"; did you mean {str(path.with_name(guess[0]))!r}?" if guess else ""
    return f"there is no job file {str(path)!r}{hint}"
