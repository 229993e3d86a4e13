"""How Sphinx makes a site of the Markdown in this repository: ``make docs``.

The pages stay plain Markdown; what the site needs beyond that is in `tests/docs/site.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.docs import site  # noqa: E402 - found there

import millstream  # noqa: E402 - found there

project = "Millstream"
author = "The authors of Millstream"
version = release = millstream.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/README"
include_patterns = ["*.md", "benchmarks/*.md", "docs/**"]
exclude_patterns = [".*", "build", "dist", "**/__pycache__"]
templates_path = ["_templates"]

html_theme = "furo"
html_title = f"Millstream {release}"
html_additional_pages = {"index": "index.html"}
html_copy_source = False

myst_heading_anchors = 4
default_role = "py:obj"
nitpicky = True

autodoc_member_order = "alphabetical"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True

setup = site.setup
