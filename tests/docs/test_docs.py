"""The pages in `docs/` say what is true: links, names, defaults, and code that runs.

A ```` ```python ```` block of a page is run as written, on the local launcher, after the
blocks before it; an ```` ```output ```` block behind it is what it must print.  A block
that needs a cluster is marked ```` ```python no-run ````, and is only compiled.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from tests.docs.api_reference import PAGE, reference

from millstream.config import Config, configured
from millstream.launch.options import LaunchOptions, default_options

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]
TAUGHT = [
    DOCS / "start.md",
    *sorted((DOCS / "concepts").glob("*.md")),
    *sorted((DOCS / "how-to").glob("*.md")),
]

FENCED = re.compile(
    r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")
NAMED_PATH = re.compile(
    r"`(?P<path>(?:src/millstream|tests|benchmarks|examples)/[\w./-]+)(?:::(?P<name>[\w.]+))?`"
)
SETTING = re.compile(
    r"^\| `(?P<name>\w+)` \| `(?P<default>[^`]+)` \| (?P<meaning>.+) \|$", re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A block of code, the line of the page it begins on, and what it prints."""

    code: str
    line: int
    is_run: bool
    output: str | None


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    fences = list(FENCED.finditer(text))
    found = []
    for fence, following in zip_longest(fences, fences[1:]):
        language, *marks = fence["info"].split() or [""]
        if language != "python":
            continue
        has_output = following is not None and following["info"] == "output"
        found.append(
            Block(
                fence["body"],
                text[: fence.start("body")].count("\n"),
                "no-run" not in marks,
                following["body"] if following and has_output else None,
            )
        )
    return found


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_relative_links_lead_somewhere(page: Path) -> None:
    """A reader who follows a link finds a page."""
    prose = FENCED.sub("", page.read_text())
    targets = [match["target"] for match in LINK.finditer(prose)]
    relative = [
        t for t in targets if "://" not in t and not t.startswith(("#", "mailto:"))
    ]

    missing = [t for t in relative if not (page.parent / t.partition("#")[0]).exists()]

    assert missing == []


@pytest.mark.parametrize("page", TAUGHT, ids=ids)
def test_snippets_run_and_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snippet that is copied from a page works."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        # Empty lines in front let a traceback name the line of the page.
        code = compile("\n" * block.line + block.code, str(page), "exec")
        printed = io.StringIO()
        if block.is_run:
            with (
                default_options(LaunchOptions(on="local")),
                contextlib.redirect_stdout(printed),
            ):
                exec(code, namespace)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"{ids(page)}:{block.line}"


def test_paths_in_the_map_of_the_papers_exist() -> None:
    """What `docs/papers.md` points at is there, down to the function."""
    wrong = []
    for match in NAMED_PATH.finditer((DOCS / "papers.md").read_text()):
        path, name = ROOT / match["path"], match["name"]
        if not path.exists():
            wrong.append(match["path"])
        elif name is not None:
            *_, last = name.split(".")
            if not re.search(
                rf"\b(?:def|class) {last}\b|^{last}\b.* = ",
                path.read_text(),
                re.MULTILINE,
            ):
                wrong.append(match[0])

    assert wrong == []


def test_map_of_the_papers_points_at_something() -> None:
    """The pattern above still finds the paths that it is there to check."""
    assert len(NAMED_PATH.findall((DOCS / "papers.md").read_text())) > 50


def test_api_page_lists_every_public_name() -> None:
    """It is made from the docstrings: ``python -m tests.docs.api_reference``."""
    assert PAGE.read_text() == reference()


def test_configuration_page_lists_every_setting_with_its_default() -> None:
    """Page and class agree on names, order and defaults."""
    page = (DOCS / "reference" / "configuration.md").read_text()
    written = {match["name"]: match["default"] for match in SETTING.finditer(page)}
    defaults = Config()

    assert list(written) == [field.name for field in fields(Config)]
    for name, text in written.items():
        assert getattr(configured(defaults, {name: text}), name) == getattr(
            defaults, name
        ), f"the default of {name} is not {text}"
