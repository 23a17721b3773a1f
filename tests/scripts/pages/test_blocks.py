"""Generated parts of a page between markers."""

import pytest

from pages.blocks import filled


def test_the_text_between_markers_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before <!-- a -->\nold\n<!-- end --> <!-- b -->\nkept\n<!-- end -->")
    assert filled(page, {"a": r"\new"}) == "before <!-- a -->\n\\new\n<!-- end --> <!-- b -->\nkept\n<!-- end -->"


def test_a_page_without_its_markers_is_an_error(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- a --> without an end")
    with pytest.raises(SystemExit, match="has no block <!-- a -->"):
        filled(page, {"a": "new"})
