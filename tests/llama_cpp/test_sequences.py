"""Several sequences of one context: they share calls, and nothing else."""

import pytest
from llama_host import tokens
from test_sessions import LAYERS, session_host  # noqa: F401 (a fixture)

LONG, SHORT, OTHER = tokens(300), tokens(40, seed=2), tokens(170, seed=3)


def alone(host, *prompts):
    """The most likely token behind each prompt, where nothing else is computed."""
    return host(*(command for prompt in prompts for command in (["extend", prompt], ["truncate", 0])))[::2]


def test_sequences_of_one_call_say_what_each_says_alone(session_host):  # noqa: F811
    """They have different lengths, one takes the place of another one in between, and steps leave some out."""
    prompts = LONG, SHORT, OTHER
    done = session_host(
        *(["extend", prompt, number] for number, prompt in enumerate(prompts)),
        ["step", [0, 1, 2], [7, 8, 9]],
        ["truncate", 0, 1],
        ["step", [0, 2], [10, 11]],
        ["extend", OTHER[:90], 1],
        ["step", [2, 1], [12, 13]],
        ["step", [1], [14]],
        ["step", [0], [15]],
    )
    first, _, second, third, fourth, *last = done[3:]
    assert done[:3] == alone(session_host, *prompts)
    assert first == alone(session_host, [*LONG, 7], [*SHORT, 8], [*OTHER, 9])
    assert second == alone(session_host, [*LONG, 7, 10], [*OTHER, 9, 11])
    assert [third] == alone(session_host, OTHER[:90])
    assert fourth == alone(session_host, [*OTHER, 9, 11, 12], [*OTHER[:90], 13])
    assert last == [[one] for one in alone(session_host, [*OTHER[:90], 13, 14], [*LONG, 7, 10, 15])]


def test_a_kept_session_goes_on_in_any_sequence_beside_others(session_host):  # noqa: F811
    """No row is written or read for what is kept, whichever sequence takes it, while another one runs; two sequences
    go on with the same one, and each is kept as its own."""
    session_host(["extend", LONG[:200]], ["keep", "one"])
    wanted = alone(session_host, LONG, [*LONG[:200], *SHORT])
    _, before, found, again, middle, *said, after, _, _ = session_host(
        ["extend", OTHER],
        ["counters"],
        ["resume", LONG, "", 2],
        ["resume", [*LONG[:200], *SHORT], "", 1],
        ["counters"],
        ["extend", LONG[200:], 2],
        ["extend", SHORT, 1],
        ["step", [0, 1, 2], [7, 8, 9]],
        ["counters"],
        ["keep", "two", 2],
        ["keep", "three", 1],
    )
    assert (found, again) == (200, 200)
    assert [middle[name] - before[name] for name in ("appended_rows", "reads")] == [0, 0]
    assert said[:2] == wanted
    assert said[2] == alone(session_host, [*OTHER, 7], [*LONG[:200], *SHORT, 8], [*LONG, 9])
    assert after["appended_rows"] - middle["appended_rows"] == 2 * LAYERS * (100 + len(SHORT) + 3)
    assert session_host(["resume", [*LONG, 9, 5]], ["resume", [*LONG[:200], *SHORT, 8, 5], "", 1]) == [301, 241]


def test_a_step_that_cannot_be_computed_changes_no_sequence(session_host):  # noqa: F811
    """One of the two is full."""
    full = tokens(1024, seed=4)
    first, _, refused, after = session_host(
        ["extend", SHORT], ["extend", full, 1], ["step", [0, 1], [7, 8]], ["step", [0], [7]]
    )
    assert refused == "1025 tokens exceed the context of 1024"
    assert [first, *after] == alone(session_host, SHORT, [*SHORT, 7])


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_of_its_sequences(session_host):  # noqa: F811
    session_host(["extend", LONG], ["extend", SHORT, 1], ["extend", OTHER, 2], ["keep", "", 2], ["die"])
    assert len(session_host(["sessions"])[0]) == 1
    assert session_host(["resume", [*OTHER, 5], "", 1]) == [len(OTHER)]
