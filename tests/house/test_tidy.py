"""Checks on the code itself that no off-the-shelf linter makes.

The limits only ever go down.  A function that is already too long is listed in
`LONG_FUNCTIONS`; a new one fails.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ROOMS = ("src", "tests", "examples", "benchmarks")
EVERYTHING = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
LONG_FUNCTIONS: frozenset[str] = frozenset()
PURE_LAYERS = ("protocol", "plan")
BANNED_IN_PURE_LAYERS = frozenset({"print", "open", "id", "hash", "input"})
MEANINGLESS_NAMES = frozenset({"utils", "util", "helpers", "common", "misc"})
ANY_MAX = {
    "columns": 3,
    "connectors": 16,
    "launch": 10,
    "operators": 113,
    "plan": 19,
    "protocol": 10,
    "runtime": 25,
    "simulation": 10,
    "state": 12,
}
"""How often each engine room says `Any`; what is a user's has a name in `values.py`."""
ASSERTIONS_MIN = 1.02
"""Assertions for each function of the protocol, on average; this one only goes up."""
UNTRACKED = re.compile(r"\bTODO\b(?!\(#\d+\))|\bFIXME\b|\bXXX\b")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


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


def long_functions(path: Path) -> list[str]:
    """Return which functions of a file are too long, and how long they are."""
    lengths = {
        f"{name_of(path)}::{node.name}": (node.end_lineno or 0)
        - node.lineno
        + 1
        - docstring_lines(node)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return [
        f"{name} has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed"
        for name, lines in lengths.items()
        if lines > FUNCTION_LINES_MAX and name not in LONG_FUNCTIONS
    ]


def impure_calls(path: Path) -> list[str]:
    """Return where a file calls what no pure layer may call."""
    return [
        f"{name_of(path)}:{node.lineno}: {node.func.id}() is banned in a pure layer"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in BANNED_IN_PURE_LAYERS
    ]


def any_count(path: Path) -> int:
    """Return how often a file says that it does not know what a value is."""
    nodes = ast.walk(tree_of(path))
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)


def count_of(kinds: tuple[type[ast.AST], ...], path: Path) -> int:
    """Return how many such nodes a file has."""
    return sum(isinstance(node, kinds) for node in ast.walk(tree_of(path)))


def test_every_file_begins_with_a_docstring() -> None:
    """The first thing a newcomer reads in a file says what the file is for."""
    assert [
        name_of(path) for path in SOURCES if not ast.get_docstring(tree_of(path))
    ] == []


def test_files_have_a_bounded_length() -> None:
    """What is longer does not fit in a head; split it."""
    lengths = {
        name_of(path): len(path.read_text().splitlines())
        - docstring_lines(tree_of(path))
        for path in SOURCES
    }
    assert {
        name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX
    } == {}


def test_functions_fit_on_a_screen() -> None:
    """A docstring does not count: a long explanation is no sin."""
    assert [found for path in SOURCES for found in long_functions(path)] == []


def test_pure_layers_call_nothing_impure() -> None:
    """`hash` of a str differs between processes; `id` differs between runs."""
    pure = [
        path
        for path in SOURCES
        if any(f"/{layer}/" in path.as_posix() for layer in PURE_LAYERS)
    ]
    assert pure
    assert [found for path in pure for found in impure_calls(path)] == []


def test_every_public_module_says_what_it_offers() -> None:
    """Whatever `__all__` leaves out may change without notice."""
    assert [
        name_of(path)
        for path in SOURCES
        if not path.name.startswith("_")
        and "__all__" not in assigned_names(tree_of(path))
    ] == []


def test_files_are_named_after_what_is_in_them() -> None:
    """A drawer called `utils` fills up with things that belong elsewhere."""
    assert [
        name_of(path)
        for path in EVERYTHING
        if MEANINGLESS_NAMES
        & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    ] == []


def test_a_promise_in_a_comment_has_an_issue() -> None:
    """Work left for later is written as `TODO(#123):`, where it can be found."""
    assert [
        f"{name_of(path)}:{line}: {comment}"
        for path in EVERYTHING
        for line, comment in comments(path.read_text())
        if UNTRACKED.search(comment)
    ] == []


def test_engine_says_what_its_values_are() -> None:
    """`Any` tells a reader nothing, and mypy looks at nothing behind it."""
    found = {
        room: sum(map(any_count, (ROOT / "src" / "millstream" / room).rglob("*.py")))
        for room in ANY_MAX
    }
    assert {room: n for room, n in found.items() if n > ANY_MAX[room]} == {}


def test_protocol_asserts_what_it_relies_on() -> None:
    """A mistake in a core is found where it is made, not in what comes of it."""
    cores = sorted((ROOT / "src" / "millstream" / "protocol").rglob("*.py"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    asserted = sum(count_of((ast.Assert,), path) for path in cores)
    assert asserted / sum(count_of(functions, path) for path in cores) >= ASSERTIONS_MIN
