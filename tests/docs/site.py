"""What Sphinx needs beyond the Markdown of the repository; `docs/conf.py` hands over to it.

The pages are written for whoever reads them as they are, so they hold no directives.  While
the site is built, links to names lead to their docstrings, the lists of links of
`docs/README.md` become the contents, and the pages of docstrings are made.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.api_reference import GROUPS

import millstream as ms
from millstream import errors, testing

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GENERATED", "PUBLIC_MODULES", "pages", "prepared", "public_names", "setup"]

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "reference" / "api"
"""Where the pages of docstrings are; Git does not know them."""

PUBLIC_MODULES = (
    "millstream",
    "millstream.errors",
    "millstream.testing",
    "millstream.windows",
)

_CONTENTS = "docs/README"
_OVERVIEW = "docs/reference/api"
_ANCHOR = re.compile(r'<a id="(?P<name>[\w.]+)"></a>(?P<text>`[^`]+`)')
_TO_NAME = re.compile(r"\]\([\w./-]*\bapi\.md#(?P<name>millstream\.[\w.]+)\)")
_TO_FOLDER = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[\w./-]+/)\)")
_HEADING = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<target>[^)]+)\)", re.MULTILINE)
_PLAIN_BASES = "object, Exception, BaseException, Warning, UserWarning, Flag, Generic"


def public_names() -> list[str]:
    """Return every name that somebody may import, with its module."""
    return [
        f"{module}.{name}"
        for module in PUBLIC_MODULES
        for name in import_module(module).__all__
        if f"{module}.{name}" not in PUBLIC_MODULES
    ]


def pages() -> dict[str, str]:
    """Return the pages of docstrings, in reStructuredText, by their file's name."""
    grouped = {name for names in GROUPS.values() for name in names}
    raised = [name for name in ms.__all__ if _is_error(getattr(ms, name))]
    rest = [name for name in ms.__all__ if name not in {*grouped, *raised, "windows"}]
    only_there = [name for name in errors.__all__ if name not in raised]
    made = {title: _directives("millstream", names) for title, names in GROUPS.items()}
    made["Everything else in millstream"] = _directives("millstream", rest)
    for module in (ms.windows, testing):
        name = module.__name__
        made[name] = [_head(name), *_directives(name, module.__all__)]
    made["Errors and warnings"] = [
        *_directives("millstream", raised),
        *_directives("millstream.errors", only_there),
    ]
    return {_file_name(title): _page(title, parts) for title, parts in made.items()}


def prepared(docname: str, text: str) -> str:
    """Return a page as Sphinx gets it."""
    folder = (ROOT / docname).parent
    text = _ANCHOR.sub(r"[\g<text>](#\g<name>)", text)
    text = _TO_NAME.sub(r"](#\g<name>)", text)
    text = _TO_FOLDER.sub(lambda match: _instead_of_folder(match, folder), text)
    if docname == _CONTENTS:
        text += "\n".join(_contents(text))
    if docname == _OVERVIEW:
        text += _toctree("Docstrings", [f"api/{name}" for name in pages()])
    return text


def setup(app: Any) -> None:
    """Connect what is above to Sphinx."""
    app.add_lexer("output", import_module("pygments.lexers.special").TextLexer)
    app.connect("builder-inited", lambda _: _write_pages())
    app.connect("source-read", _read)
    app.connect("missing-reference", _resolved)


def _write_pages() -> None:
    GENERATED.mkdir(exist_ok=True)
    wanted = pages()
    for path in GENERATED.glob("*.rst"):
        if path.stem not in wanted:
            path.unlink()
    for name, text in wanted.items():
        path = GENERATED / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _read(_: Any, docname: str, source: list[str]) -> None:
    if (ROOT / f"{docname}.md").exists():
        source[0] = prepared(docname, source[0])


def _resolved(_app: Any, env: Any, node: Any, content: Any) -> Any:
    """Find what docstrings name without its module, and leave names of others as text.

    A member of a public class that is not there is an error.
    """
    if node.get("refdomain") != "py":
        return None
    short = node["reftarget"].removeprefix("ms.").removeprefix("millstream.")
    domain = env.get_domain("py")
    for name in (f"millstream.{short}", f"millstream.testing.{short}"):
        if name in domain.objects:
            found, builder = node["refdoc"], _app.builder
            return domain.resolve_xref(env, found, builder, "obj", name, node, content)
    owner, _, member = short.partition(".")
    return None if owner in ms.__all__ and member else content


def _instead_of_folder(link: re.Match[str], folder: Path) -> str:
    """Return a link to the contents, where a site has no page of a folder."""
    target = (folder / link["target"]).resolve()
    if not target.is_relative_to(ROOT / "docs"):
        return link["text"]
    return f"[{link['text']}]({os.path.relpath(ROOT / 'docs' / 'README.md', folder)})"


def _contents(text: str) -> Iterable[str]:
    """Yield the lists of links of a page as contents, with its headings."""
    _, *sections = _HEADING.split(text)
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        found = _ENTRY.finditer(body)
        entries = [f"{each['title']} <{each['target']}>" for each in found]
        yield _toctree(title, entries)


def _toctree(caption: str, entries: Iterable[str]) -> str:
    lines = ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *entries]
    return "\n".join([*lines, "```", ""])


def _is_error(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, BaseException)


def _file_name(title: str) -> str:
    return title.lower().replace(" ", "-").replace(".", "-")


def _page(title: str, parts: list[str]) -> str:
    return "\n".join([title, "=" * len(title), "", *parts])


def _head(module: str) -> str:
    return f".. automodule:: {module}\n   :no-members:\n"


def _directives(module: str, names: Iterable[str]) -> list[str]:
    return [_directive(module, name) for name in names]


def _directive(module: str, attribute: str) -> str:
    name = f"{module}.{attribute}"
    member = getattr(import_module(module), attribute)
    if not isinstance(member, type):
        return f".. autofunction:: {name}\n"
    kind = "autoexception" if _is_error(member) else "autoclass"
    options = {"members": ""}
    if _is_error(member) or attribute == "WindowFrame":
        options["show-inheritance"] = ""
    else:
        options["inherited-members"] = _PLAIN_BASES
    lines = [f"   :{option}: {value}" for option, value in options.items()]
    return "\n".join([f".. {kind}:: {name}", *lines, ""])
