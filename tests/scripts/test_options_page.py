"""docs/options.md has the table of what goes with what."""

from options_page import PAGE, exclusions, model_needs
from page_blocks import filled


def test_the_page_is_current():
    assert filled(PAGE, {"exclusions": exclusions(), "models": model_needs()}) == PAGE.read_text()
