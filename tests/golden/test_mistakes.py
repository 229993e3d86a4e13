"""Programs that are wrong, each with the sentence that it must fail with.

The first line of a program is ``# fail: <part of the message>``.  In it ``{file}`` is
the program's name and ``{here}`` that name with the number of the line marked
``# line``; the message must contain both where they stand.  They are no ``.py`` files
because linters and type checkers would find the same mistakes.
"""

from __future__ import annotations

import re
import runpy
import traceback
from pathlib import Path

import pytest

from millstream.errors import UsageError

MISTAKES = sorted((Path(__file__).parent / "mistakes").glob("*.py.txt"))
HEADER = "# fail: "


def marked_line(lines: list[str]) -> int:
    (number,) = (i for i, line in enumerate(lines, 1) if line.endswith("# line"))
    return number


@pytest.mark.parametrize(
    "program", MISTAKES, ids=lambda path: path.name.removesuffix(".py.txt")
)
def test_mistake_fails_while_the_flow_is_built(program: Path) -> None:
    """The message says where, what was expected, what came, and what to do."""
    lines = program.read_text().splitlines()
    here = f"{program.name}:{marked_line(lines)}"
    fragment = lines[0].removeprefix(HEADER).replace("{here}", here)
    fragment = fragment.replace("{file}", program.name)
    assert lines[0].startswith(HEADER)

    with pytest.raises(UsageError, match=re.escape(fragment)) as raised:
        runpy.run_path(str(program))

    frames = traceback.extract_tb(raised.value.__traceback__)
    is_user_line = any(f"{Path(f.filename).name}:{f.lineno}" == here for f in frames)
    assert is_user_line or here in str(raised.value)
    assert "\n" not in str(raised.value), "one sentence"
