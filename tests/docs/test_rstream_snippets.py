"""Every snippet of RStream's section III runs as the page sets it beside ours."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.launch.options import LaunchOptions, default_options, intercept
from millstream.testing import simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import millstream as ms

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
    "iterate",
    "cycle",
    "sliding_count_reduce",
    "sliding_p_time_reduce",
    "sliding_e_time_reduce",
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


def canonical(result: Any) -> list[str]:
    """Return a result so that the order of rows does not matter."""
    return sorted(map(repr, result)) if isinstance(result, list) else [repr(result)]


def results(code: str, on: str) -> list[list[str]]:
    """Run a block with two workers and return what its sinks gave back."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    with default_options(LaunchOptions(on=on, workers=2)):
        exec(compile(code, str(PAGE), "exec"), scope)
    return [canonical(handle.result()) for handle in scope["flow"].handles]


@pytest.fixture
def snippets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the blocks of the page, in a place where they may write."""
    monkeypatch.chdir(tmp_path)
    return [body for language, body in blocks() if language == "python"]


@pytest.mark.spark
def test_every_snippet_gives_the_same_on_spark(
    snippets: list[str], spark: SparkSession
) -> None:
    """The session of this program is the one that a bare `run` takes."""
    assert spark.version
    for code in snippets:
        assert results(code, "spark") == results(code, "local"), code


def test_every_snippet_gives_the_same_in_the_simulator(snippets: list[str]) -> None:
    """The simulator compares the rows of every sink with those of a calm run."""
    flows: list[ms.Flow] = []
    for code in snippets:
        with intercept(flows.append):
            results(code, "local")

    assert len(flows) == len(snippets)
    for flow in flows:
        assert simulate(flow, seeds=range(5)).is_clean


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
