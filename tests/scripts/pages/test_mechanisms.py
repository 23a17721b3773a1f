"""The table of the papers' mechanisms: what it names exists, and what it says to run is shown by a test that runs."""

import pytest
from tests_that_run import is_run

from kvdrive.tree import ROOT
from pages.mechanisms import papers

ROWS = [row for paper in papers() for row in paper["rows"]]


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_mechanism_is_shown_by_a_test_that_is_run_or_says_why_not(row):
    assert (ROOT / row["code"]).exists()
    assert ("test" in row) != ("open" in row)
    assert "open" in row or is_run(row["test"])
