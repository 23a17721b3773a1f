"""A hook of mkdocs: links to files outside docs/ become the names of the files, because the site has no such page."""

from __future__ import annotations

import posixpath
import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page, with `[text](../../sim/README.md)` as "text (`sim/README.md`)"."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        return found[0] if path.startswith("docs/") else f"{found[1]} (`{path}`)"

    return re.sub(r"\[([^\]\n]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)", link, markdown)
