"""docs/identity.md shows the lists that the code uses."""

from identity_page import PAGE, lists
from page_blocks import filled


def test_the_page_is_current():
    assert PAGE.read_text() == filled(PAGE, {"harmless": lists()}), "make identity-page"
