"""Generated parts of a page, between `<!-- name -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from pathlib import Path


def write_blocks(page: Path, blocks: dict[str, str]) -> None:
    """Replace the text between `<!-- name -->` and `<!-- end -->`. Raises SystemExit if a block is missing."""
    text = page.read_text()
    for name, block in blocks.items():
        filled = f"<!-- {name} -->\n{block}\n<!-- end -->"
        text, count = re.subn(f"<!-- {name} -->.*?<!-- end -->", lambda _, new=filled: new, text, flags=re.S)
        if count != 1:
            raise SystemExit(f"{page} has no block <!-- {name} --> ... <!-- end -->")
    page.write_text(text)
