"""Stop texts are found in text that comes in pieces."""

import pytest

from kvdrive.server.stops import StopFilter


def streamed(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    """All text that a filter lets through, and whether a stop text came."""
    found = StopFilter(stops)
    text = "".join(found.put(piece) for piece in pieces)
    return text + found.end(), found.stopped


@pytest.mark.parametrize("stop", ["aab", "abab", "aaa"])
def test_a_stop_text_that_begins_like_itself_is_found(stop: str) -> None:
    """Its beginning ends with its beginning again, so several endings of the text may begin it."""
    assert streamed([stop], list(f"xx{stop}yy")) == ("xx", True)


def test_what_only_begins_a_stop_text_comes_in_the_end() -> None:
    assert streamed(["abc", "bd"], list("xab")) == ("xab", False)
    assert streamed(["abc", "bd"], list("xabd")) == ("xa", True)


def test_the_stop_text_that_comes_first_counts() -> None:
    assert streamed(["cd", "b"], ["abcd"]) == ("a", True)
