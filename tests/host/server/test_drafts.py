"""What is drafted for a sequence, and when it pauses."""

import random
from itertools import pairwise

import pytest

from kvdrive.server.drafts import FIRST, MOST, RARE, WORTH, Drafts, Lookup

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
    places = [count for count, drafted in found for _ in range(drafted)]
    assert places[:3] == [10] * FIRST
    assert {after - before for before, after in pairwise(places[3:])} == {RARE}
    assert len(places) == FIRST + 2990 // RARE


def worst(length, waits):
    """A text that repeats until a draft has `length` tokens, all of which are wrong, as are the next `waits` drafts."""
    left = 0

    def accepts(drafted):
        nonlocal left
        if left:
            left -= 1
            return 0
        if drafted < length:
            return drafted
        left = waits
        return 0

    return accepts


def seeded(seed, accepts):
    chosen = random.Random(seed)
    return lambda drafted: accepts(chosen, drafted)


@pytest.mark.parametrize("accepts", [
    *(worst(length, waits) for length in (1, 2, 3, 7) for waits in (0, 1, 20, 100)),
    *((lambda drafted, part=part: drafted // part) for part in (2, 3, 4)),
    *(seeded(seed, lambda chosen, drafted: chosen.randint(0, drafted)) for seed in range(5)),
    *(seeded(seed, lambda chosen, drafted: min(drafted, chosen.random() < 0.3)) for seed in range(5)),
])  # fmt: skip
@pytest.mark.parametrize("worth", [WORTH, 1 / 3])
def test_rejected_tokens_are_bounded_whatever_the_text_is(accepts, worth):
    drafts, count, accepted_sum, rejected_sum = Drafts(Always(), worth), 10, 0, 0
    while count < 3000:
        drafted = len(drafts.draft([0] * count, 100))
        accepted = accepts(drafted)
        drafts.seen(accepted, drafted)
        accepted_sum, rejected_sum = accepted_sum + accepted, rejected_sum + drafted - accepted
        assert rejected_sum <= FIRST + worth * accepted_sum + (count - 10) / RARE
        count += accepted + 1


def test_a_sequence_that_repeats_again_drafts_as_before():
    """After one right token the next draft has two, and the one behind it as many as at any time."""
    drafts, count, found = Drafts(Always()), 0, []
    for _ in range(4000):
        drafts.seen(0, len(drafts.draft([0] * count, 100)))
        count += 1
    for _ in range(RARE + 3):
        found.append(len(drafts.draft([0] * count, 100)))
        drafts.seen(found[-1], found[-1])
        count += 1 + found[-1]
    first = next(place for place, drafted in enumerate(found) if drafted)
    assert first < RARE
    assert found[first : first + 4] == [1, 2, 4, MOST]


def test_no_more_is_drafted_than_there_is_room_for():
    drafts = Drafts(Always())
    assert [len(drafts.draft([0] * 9, room)) for room in (-1, 0, 1, 2, 3, 4)] == [0, 0, 1, 2, 3, 3]
