"""Settings of the handbook, the site that `make docs` builds from the pages of the repository.

The pages stay plain Markdown. `docs/index.md` is the home page and the navigation: each heading becomes a part of the
navigation, each link below it an entry. Sphinx warns about a page that no part has, and `make docs` fails on warnings.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

from apiserver import buildinfo

HOME = "docs/index"
HEADING, LINK = re.compile(r"^## (.+)$", re.MULTILINE), re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)\.md\)")
PAGES_BELOW = {
    "docs/decisions/README": "/docs/decisions/0*",
    "bench/README": "/bench/notes/*",
    "CONTRIBUTING": "/tests/**/README",
    "examples/README": "/examples/*/README",
}
"""Pages that have a navigation of their own: the pages that the pattern names, in the order of their names."""

project = "Sluice"
version = release = buildinfo.version()
html_title = f"Sluice {version}"
language = "en"

extensions = ["myst_parser"]
root_doc = HOME
include_patterns = ["**/*.md", "*.md"]
# A folder that is named here is not searched either.
exclude_patterns = [".*", "README.md", "dist"]

# Anchors of headings as in the views of repositories. A link to a missing one is a warning.
myst_heading_anchors = 6
# It would make a dash of each `--` in a text.
smartquotes = False

html_theme = "furo"
html_theme_options = {"top_of_page_buttons": []}
html_static_path = ["site"]
html_css_files = ["handbook.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
# The root of the site leads to the home page, which lies in a folder as in the repository.
html_additional_pages = {"index": "home.html"}
templates_path = ["site"]


def parts(page: str) -> str:
    """Return a hidden table of contents for each heading of the home page, which becomes a part of the navigation."""
    tables = []
    _, *pieces = HEADING.split(page)
    for caption, text in zip(pieces[::2], pieces[1::2], strict=True):
        entries = [f"{title} <{target}>" for title, target in LINK.findall(text)]
        tables += ["```{toctree}", ":hidden:", f":caption: {caption}", *entries, "```", ""]
    return "\n".join(tables)


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Append the navigation to the pages that have one. The files stay as they are."""
    if name == HOME:
        source[0] += f"\n{parts(source[0])}\n"
    elif name in PAGES_BELOW:
        source[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n" + PAGES_BELOW[name] + "\n```\n"


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", add_navigation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
