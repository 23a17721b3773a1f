"""Write all generated parts of the documentation; `--check`: exit status 1 names the pages that are not current."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from kvdrive.tree import ROOT

# Modules with a function `texts`, which returns the new text of each of their files.
PARTS = (
    "measured",
    "hardware",
    "gpu",
    "families",
    "requests",
    "identity",
    "options",
    "commands",
    "abi",
    "overview",
    "gain",
    "mechanisms",
)


def main() -> int:
    """Write or compare. A part that reads a page sees what the parts before it have written."""
    parser = argparse.ArgumentParser(prog="python -m pages", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: take one of {', '.join(PARTS)}")
    stale = 0
    for part in given.parts or PARTS:
        for path, text in import_module(f"pages.{part}").texts().items():
            if path.read_text() == text:
                continue
            stale += 1
            print(f"{path.relative_to(ROOT)} {'is not current: make pages' if given.check else 'written'}")
            if not given.check:
                path.write_text(text)
    return int(given.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
