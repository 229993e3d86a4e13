"""Checks on the code itself that no off-the-shelf linter makes.

The limits only ever go down.  A function that is already too long is listed in
`LONG_FUNCTIONS`; a new one fails.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ROOMS = ("src", "tests", "examples", "benchmarks")
EVERYTHING = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
LONG_FUNCTIONS: frozenset[str] = frozenset()
PURE_LAYERS = ("protocol", "plan")
BANNED_IN_PURE_LAYERS = frozenset({"print", "open", "id", "hash", "input"})
MEANINGLESS_NAMES = frozenset({"utils", "util", "helpers", "common", "misc"})
UNTRACKED = re.compile(r"\bTODO\b(?!\(#\d+\))|\bFIXME\b|\bXXX\b")


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstring_lines(tree: ast.AST) -> int:
    """Lines taken by docstrings, which no limit here counts."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docs = [
        ast.get_docstring(node, clean=False) or ""
        for node in ast.walk(tree)
        if isinstance(node, documented)
    ]
    return sum(len(doc.splitlines()) for doc in docs)


def comments(text: str) -> list[tuple[int, str]]:
    """Line number and text of every comment."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        (token.start[0], token.string)
        for token in tokens
        if token.type == tokenize.COMMENT
    ]


def assigned_names(tree: ast.Module) -> set[str]:
    """Names given a value at the top level of a module."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_file_has_a_docstring_and_a_bounded_length(path: Path) -> None:
    """The first thing a newcomer reads in a file says what the file is for."""
    tree = ast.parse(path.read_text())
    lines = len(path.read_text().splitlines()) - docstring_lines(tree)

    assert ast.get_docstring(tree), f"{ids(path)} has no module docstring"
    assert lines <= FILE_LINES_MAX, f"{ids(path)} has {lines} lines of code; split it"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_functions_fit_on_a_screen(path: Path) -> None:
    """A docstring does not count: a long explanation is no sin."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1 - docstring_lines(node)
            name = f"{ids(path)}::{node.name}"
            assert lines <= FUNCTION_LINES_MAX or name in LONG_FUNCTIONS, (
                f"{name} has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed"
            )


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_pure_layers_call_nothing_impure(path: Path) -> None:
    """`hash` of a str differs between processes; `id` differs between runs."""
    if not any(f"/{layer}/" in path.as_posix() for layer in PURE_LAYERS):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in BANNED_IN_PURE_LAYERS, (
                f"{ids(path)}:{node.lineno}: {node.func.id}() is banned in a pure layer"
            )


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_public_module_says_what_it_offers(path: Path) -> None:
    """Whatever `__all__` leaves out may change without notice."""
    if path.name.startswith("_"):
        return
    assert "__all__" in assigned_names(ast.parse(path.read_text())), (
        f"{ids(path)} has no __all__; list what other modules may import from it"
    )


@pytest.mark.parametrize("path", EVERYTHING, ids=ids)
def test_file_is_named_after_what_is_in_it(path: Path) -> None:
    """A drawer called `utils` fills up with things that belong elsewhere."""
    names = {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    assert not names & MEANINGLESS_NAMES, f"{ids(path)}: name it after its contents"


@pytest.mark.parametrize("path", EVERYTHING, ids=ids)
def test_a_promise_in_a_comment_has_an_issue(path: Path) -> None:
    """Work left for later is written down where it can be found."""
    for line, comment in comments(path.read_text()):
        assert not UNTRACKED.search(comment), (
            f"{ids(path)}:{line}: write `TODO(#123):` with the number of an issue"
        )
