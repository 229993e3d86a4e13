"""Every snippet of RStream's section III runs as the page sets it beside ours."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.launch.options import LaunchOptions, default_options

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "rstream-snippets.md"
FENCED = re.compile(r"^```(?P<info>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CONSTRUCTS = (
    "from_iterable",
    "from_parallel",
    "for_each",
    "parallel_for_each",
    "collect",
    "reduce",
    "map",
    "flat_map",
    "filter",
    "key_by",
    "group_by",
    "max_parallelism",
    "shuffle",
    "read_text",
)


def blocks() -> list[tuple[str, str]]:
    """Return the language and the text of every block of the page."""
    return [
        (found["info"], found["body"]) for found in FENCED.finditer(PAGE.read_text())
    ]


def test_every_python_block_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the page, because one block may use a file of another."""
    monkeypatch.chdir(tmp_path)
    every = blocks()
    for (language, code), (following, output) in pairwise(every):
        if language != "python":
            continue
        assert following == "output", code
        scope: dict[str, Any] = {"__name__": "__main__"}
        with default_options(LaunchOptions(on="local")):
            exec(compile(code, str(PAGE), "exec"), scope)
        assert capsys.readouterr().out == output, code


def test_page_uses_every_construct_of_the_section() -> None:
    """A construct without a snippet would not be shown to work."""
    code = "".join(body for language, body in blocks() if language == "python")

    assert [name for name in CONSTRUCTS if f".{name}(" not in code] == []


def test_every_snippet_of_the_paper_is_followed_by_ours_or_by_not_yet() -> None:
    """Nothing of the section is passed over in silence."""
    text = PAGE.read_text()
    answers = re.findall(
        r"^```rust\n.*?^```\n\n(?:[^`]*?\n\n)?(```python|Not yet\.)",
        text,
        re.MULTILINE | re.DOTALL,
    )

    assert len(answers) == text.count("```rust\n")
