"""Write `docs/reference/api.md` from the docstrings: ``python -m tests.docs.api_reference``.

The page lists every public name with its first sentence; what is behind it is in the
docstring itself, with an example that the tests run.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream as ms
from millstream import errors, testing

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["GROUPS", "PAGE", "reference"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"

GROUPS: dict[str, tuple[str, ...]] = {
    "Flows and jobs": ("Flow", "Job", "ResultHandle"),
    "Streams of rows": ("Stream", "KeyedStream", "GroupedStream", "WindowedStream"),
    "Streams of frames": ("Frame", "GroupedFrame", "WindowedFrame", "WindowFrame"),
    "Stateful functions": ("StatefulFunction", "ValueState", "ListState", "MapState"),
    "Connectors of your own": ("Source", "SourceReader", "Sink", "SinkWriter"),
}
"""Classes whose members are listed one by one; all other names are a line each."""

_HEAD = """\
# The API at a glance

*For people who look for a name.*

Each name with its first sentence.
The rest - parameters, what is raised, and an example that the tests run - is in the site that `make docs` makes, where each of these names is a link, and in Python behind `help(ms.Stream.window)`.
"""


def reference() -> str:
    """Return the page as it should be."""
    parts = [_HEAD]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [_of_class(name) for name in names]
    listed = {name for names in GROUPS.values() for name in names}
    rest = [name for name in ms.__all__ if name not in listed and name != "windows"]
    parts.append("## Windows: `ms.windows`\n")
    parts.append(_table("millstream.windows", _exported(ms.windows)))
    parts.append("## For tests: `millstream.testing`\n")
    parts.append(_table("millstream.testing", _exported(testing)))
    parts.append("## Everything else in `millstream`\n")
    parts.append(_table("millstream", {name: getattr(ms, name) for name in rest}))
    only_there = {n: e for n, e in _exported(errors).items() if n not in ms.__all__}
    parts.append("## More errors: `millstream.errors`\n")
    parts.append(_table("millstream.errors", only_there))
    return "\n".join(parts)


def _exported(module: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__all__}


def _of_class(name: str) -> str:
    kind = getattr(ms, name)
    shown = _first_sentence(kind)
    members = {
        member: getattr(kind, member)
        for member, value in inspect.getmembers(kind)
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
    }
    if name == "WindowFrame":
        shown += " It has every verb of `Frame`, and:"
        members = {key: each for key, each in members.items() if key in vars(kind)}
    table = _table(f"millstream.{name}", members)
    return f'### <a id="millstream.{name}"></a>`{name}`\n\n{shown}\n\n{table}'


def _table(owner: str, members: dict[str, Any]) -> str:
    rows = [
        f'| <a id="{owner}.{name}"></a>`{name}{_parameters(member)}` '
        f"| {_first_sentence(member)} |"
        for name, member in sorted(members.items())
    ]
    return "\n".join(["| name | what it is |", "|---|---|", *rows, ""])


def _parameters(member: Any) -> str:
    """Return the names of what is passed, without types, which only `help` has room for."""
    if not inspect.isfunction(member):
        return ""
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    names = []
    for parameter in inspect.signature(member).parameters.values():
        is_optional = parameter.default is not inspect.Parameter.empty
        name = stars.get(parameter.kind, "") + parameter.name
        names.append(f"{name}=" if is_optional else name)
    return f"({', '.join(name for name in names if name != 'self')})"


def _first_sentence(member: Any) -> str:
    paragraph = (inspect.getdoc(member) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference())
    sys.stdout.write(f"wrote {PAGE}\n")
