"""The site of `make docs` has every page; links to files outside docs/ become their names."""

import re
from pathlib import Path
from types import SimpleNamespace

from website.hooks import on_page_markdown

ROOT = Path(__file__).resolve().parents[2]


def test_the_menu_has_every_page_once():
    menu = (ROOT / "scripts/website/mkdocs.yml").read_text().partition("nav:")[2]
    named = re.findall(r"[\w/-]+\.md", menu)
    assert sorted(named) == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


def test_a_link_out_of_the_pages_becomes_a_name():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="design/drive.md"))
    text = "[a](../../sim/README.md#x) [b](../guide/install.md) [c](#d) ![e](../page.png)"
    shown = "a (`sim/README.md`) [b](../guide/install.md) [c](#d) ![e](../page.png)"
    assert on_page_markdown(text, page) == shown
