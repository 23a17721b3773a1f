"""Generated parts of a page, between `<!-- name -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from pathlib import Path


def filled(page: Path, blocks: dict[str, str]) -> str:
    """The page with other text between `<!-- name -->` and `<!-- end -->`. Raises SystemExit if a block is missing."""
    text = page.read_text()
    for name, block in blocks.items():
        new = f"<!-- {name} -->\n{block}\n<!-- end -->"
        text, count = re.subn(f"<!-- {re.escape(name)} -->.*?<!-- end -->", lambda _, new=new: new, text, flags=re.S)
        if count != 1:
            raise SystemExit(f"{page} has no block <!-- {name} --> ... <!-- end -->")
    return text


def write_blocks(page: Path, blocks: dict[str, str]) -> None:
    """Write `filled`."""
    page.write_text(filled(page, blocks))
