"""The modules of the API do not import each other in circles, not even late."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import millstream.api

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = Path(millstream.api.__path__[0])
OWN = "millstream.api"


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield what is imported when code runs, inside of functions too."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.ImportFrom) and child.module == OWN:
            yield from (name.name for name in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            room, _, module = child.module.rpartition(".")
            if room == OWN:
                yield module
        yield from imports(child)


def test_no_module_of_the_api_needs_one_that_needs_it() -> None:
    """Verbs of one class make another by the graph; nothing below knows `Stream`."""
    needed = {
        path.stem: set(imports(ast.parse(path.read_text("utf-8"))))
        for path in ROOM.glob("*.py")
    }
    order = list(TopologicalSorter(needed).static_order())

    assert order.index("graph") < order.index("stream") < order.index("wrapping")
    assert order.index("wrapping") < order.index("flow")
