"""The site that `make docs` makes: built without a warning, and nothing public is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.docs import site
from tests.docs.test_docs import DOCS, PAGES, ROOT, ids

if TYPE_CHECKING:
    from pathlib import Path

TO_NAME = re.compile(r"\]\((?P<page>[^)\s#]*api\.md)#(?P<name>[^)\s]+)\)")
ROWS = set(re.findall(r'<a id="([\w.]+)"', (DOCS / "reference" / "api.md").read_text()))


def inventory(built: Path) -> set[str]:
    """Return what a site of Sphinx has an entry of: four lines of text, then packed ones."""
    packed = (built / "objects.inv").read_bytes().split(b"\n", 4)[-1]
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split(" ", 1)[0] for line in lines}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_public_name_is_in_the_site(tmp_path: Path) -> None:
    """Every page is in it as well, and every link and every name that is mentioned leads somewhere."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going"]
    folders = [
        "-c",
        "docs",
        "-d",
        str(tmp_path / "doctrees"),
        ".",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(
        [*command, "--quiet", *folders],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    wanted = {*site.public_names(), *ROWS}
    assert sorted(wanted - inventory(tmp_path / "site")) == []


def test_overview_has_a_row_of_every_public_name() -> None:
    """Whoever reads the pages without the site finds the name there."""
    shorter = {name.replace("millstream.errors.", "millstream.") for name in ROWS}
    wanted = {
        n.replace("millstream.errors.", "millstream.") for n in site.public_names()
    }

    assert sorted(wanted - shorter) == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_to_names_lead_to_a_row(page: Path) -> None:
    """Without the site the row of the overview is what a reader finds."""
    names = [match["name"] for match in TO_NAME.finditer(page.read_text())]

    assert [name for name in names if name not in ROWS] == []


@pytest.mark.parametrize(
    "page", sorted((DOCS / "how-to").glob("*.md")), ids=lambda page: page.stem
)
def test_how_to_pages_link_to_what_they_are_about(page: Path) -> None:
    """From the task to the parameters is one step."""
    assert TO_NAME.search(page.read_text())


def test_a_link_to_a_folder_leads_to_the_contents() -> None:
    """A site has no page of a folder; one outside of `docs/` is not in it at all."""
    assert site.prepared("README", "[how](docs/how-to/)") == "[how](docs/README.md)"
    assert site.prepared("docs/nexmark", "[here](../examples/)") == "here"


def test_links_and_rows_of_the_overview_lead_to_docstrings() -> None:
    """On the site there is more of a name than its row."""
    link = "[`map`](../reference/api.md#millstream.Stream.map)"
    row = '| <a id="millstream.Stream.map"></a>`map(function)` |'

    assert site.prepared("docs/how-to/x", link) == "[`map`](#millstream.Stream.map)"
    assert "[`map(function)`](#millstream.Stream.map)" in site.prepared("docs/x", row)
