"""What is drafted for a sequence, and when it pauses."""

import random
from itertools import pairwise

import pytest

from kvdrive.server.drafts import MOST, Drafts, Lookup

TEXT = [5, 6, 7, 8, 9, 10, 11, 12]


def test_what_came_behind_the_same_tokens_is_drafted():
    assert Lookup(3).behind([*TEXT, 1, 6, 7, 8], 4) == [9, 10, 11, 12]
    assert Lookup(3).behind([*TEXT, 1, 6, 7, 8], 2) == [9, 10]
    assert Lookup(3).behind([*TEXT, 1, 7, 8], 4) == []  # two tokens came before, three did not
    assert Lookup(2).behind([*TEXT, 1, 7, 8], 4) == [9, 10, 11, 12]
    assert Lookup(1).behind(TEXT, 4) == []
    assert Lookup(3).behind([5], 4) == Lookup(3).behind([5, 6, 7], 4) == []


def test_the_longest_common_past_counts_and_then_the_last_place():
    first, second = [1, 2, 3, 4, 20], [9, 2, 3, 4, 30]
    assert Lookup(2).behind([*first, *second, 1, 2, 3, 4], 1) == [20]
    assert Lookup(2).behind([*first, *second, 8, 2, 3, 4], 1) == [30]


def test_a_text_that_repeats_itself_is_drafted_beyond_its_end():
    assert Lookup(2).behind([4, 1, 2, 3, 1, 2, 3, 1, 2], 7) == [3, 1, 2, 3, 1, 2, 3]
    assert Lookup(3).behind([7] * 5, 3) == [7, 7, 7]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_lookup_that_grows_finds_what_a_new_one_finds(size):
    """Against a search of each place in turn."""
    chosen = random.Random(size)
    text = [chosen.randrange(4) for _ in range(300)]
    lookup = Lookup(size)
    for count in range(1, len(text) + 1, 3):
        tokens = text[:count]
        past = {
            end: next((back for back in range(32) if back >= end or tokens[end - 1 - back] != tokens[-1 - back]), 32)
            for end in range(1, count)
        }
        best = max((end for end in past if past[end] >= size), key=lambda end: (past[end], end), default=None)
        wanted = [] if best is None else (tokens[best:] * 4)[:4]
        assert lookup.behind(tokens, 4) == Lookup(size).behind(tokens, 4) == wanted, count


class Always:
    """Drafts without end."""

    kind = "test"

    def behind(self, tokens, most):
        return [1] * most


def lengths(accepts, tokens):
    """How much is drafted at each step of a sequence that grows to `tokens` tokens; `accepts`: of a draft's tokens."""
    drafts, count, found = Drafts(Always()), 10, []
    while count < tokens:
        drafted = len(drafts.draft([0] * count, 100))
        accepted = accepts(drafted)
        drafts.seen(accepted, drafted)
        found.append((count, drafted))
        count += accepted + 1
    return found


def test_drafts_that_are_accepted_grow():
    assert [drafted for _, drafted in lengths(lambda drafted: drafted, 80)][:4] == [3, 6, MOST, MOST]


def test_drafts_that_are_rejected_become_rare():
    found = lengths(lambda drafted: 0, 3000)
    assert [drafted for _, drafted in found[:4]] == [3, 1, 1, 1]
    places = [count for count, drafted in found if drafted]
    pauses = [after - before for before, after in pairwise(places) if after - before > 1]
    assert pauses[:6] == [16, 32, 64, 128, 256, 512]
    assert set(pauses[6:]) == {512}
    assert sum(drafted for _, drafted in found) < 0.02 * 3000


def test_a_sequence_that_repeats_again_drafts_as_before():
    """The first pause after text that repeats is a short one again."""
    drafts, count = Drafts(Always()), 0
    for _ in range(4000):
        drafts.seen(0, len(drafts.draft([0] * count, 100)))
        count += 1
    for _ in range(600):
        drafted = len(drafts.draft([0] * count, 100))
        drafts.seen(drafted, drafted)
        count += 1 + drafted
    assert drafted == MOST
    missed = []
    while len(missed) < 40:
        missed.append(len(drafts.draft([0] * count, 100)))
        drafts.seen(0, missed[-1])
        count += 1
    assert missed.index(0) < 10
    assert missed[missed.index(0) :].index(1) == 15


def test_no_more_is_drafted_than_there_is_room_for():
    drafts = Drafts(Always())
    assert [len(drafts.draft([0] * 9, room)) for room in (-1, 0, 1, 2, 3, 4)] == [0, 0, 1, 2, 3, 3]
