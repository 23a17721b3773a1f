"""Trimming, and random histories of append, trim and attend against arrays."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_halves import halves

from kvdrive import abi

OK = abi.NvmeStatus.SUCCESS


@pytest.mark.parametrize("from_token", [1, 31, 32, 33, 63, 64, 69, 70, 1000])
def test_trim_cuts_inside_pages_and_tail(host, check, from_token):
    rng = np.random.default_rng(from_token)
    k, v, q = halves(rng, 2, 70, 64), halves(rng, 2, 70, 64), halves(rng, 2, 2, 64)
    host.store(k, v)
    assert host.trim(from_token=from_token).status == OK
    left = min(from_token, 70)
    if left < 70:
        assert host.submit(q, left + 1).status == abi.NvmeStatus.TOKENS_MISSING
    check(host.attend(q, left), q, k[:, :left], v[:, :left])
    new_k, new_v = halves(rng, 2, 45, 64), halves(rng, 2, 45, 64)
    host.store(new_k, new_v, first_token=left)
    k, v = (np.concatenate([old[:, :left], new], axis=1) for old, new in ((k, new_k), (v, new_v)))
    check(host.attend(q, left + 45), q, k, v)


def test_trim_to_nothing_forgets_the_session(host):
    rng = np.random.default_rng(1)
    k = halves(rng, 1, 40, 64)
    host.store(k, k)
    assert host.trim().status == OK
    assert host.trim().status == abi.NvmeStatus.UNKNOWN_SESSION
    assert host.submit(k[:, :1], 40).status == abi.NvmeStatus.UNKNOWN_SESSION
    host.store(k, k)  # again from token 0 and sequence 0, with the same session number


def test_trimmed_pages_are_used_again(make_drive, check):
    rng = np.random.default_rng(2)
    host = make_drive(capacity_bytes=8 * 4096)
    q = halves(rng, 1, 1, 64)
    for _ in range(5):
        k, v = halves(rng, 1, 128, 64), halves(rng, 1, 128, 64)  # four pages each
        host.store(k, v)
        assert host.append(k, kind=0, first_token=128).status == abi.NvmeStatus.CAPACITY_EXCEEDED
        check(host.attend(q, 128), q, k, v)
        assert host.trim().status == OK


def test_rows_that_a_trim_takes_out_of_a_page_survive_a_kill(host):
    """They replace the rows behind the pages, which the journal has already."""
    rows = halves(np.random.default_rng(4), 1, 70, 64)  # two pages and six rows
    assert host.append(rows, options=abi.AppendOption.APPEND_FUA).status == OK
    assert host.trim(from_token=40).status == OK
    assert host.flush().status == OK
    host.drive.inject("power_cut")
    host.reopen()
    assert host.drive.rows(1, 0, 0, 0).tobytes() == rows[0, :40].tobytes()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 80)),
        st.tuples(st.just("trim"), st.integers(0, 1), st.integers(0, 130)),
        st.tuples(st.just("attend"), st.integers(0, 1), st.integers(1, 130)),
    ),
    min_size=4,
    max_size=14,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True)
@given(steps=STEPS, seed=st.integers(0, 2**32 - 1))
def test_any_history_equals_arrays(make_drive, check, steps, seed):
    rng = np.random.default_rng(seed)
    host = make_drive()
    empty = np.zeros((1, 0, 64), np.float16)
    contents = {session: (empty, empty) for session in (0, 1)}
    for action, session, number in steps:
        k, v = contents[session]
        if action == "append":
            new_k, new_v = halves(rng, 1, number, 64), halves(rng, 1, number, 64)
            host.store(new_k, new_v, session=session, first_token=k.shape[1])
            contents[session] = np.concatenate([k, new_k], axis=1), np.concatenate([v, new_v], axis=1)
        elif action == "trim":
            expected = OK if k.shape[1] else abi.NvmeStatus.UNKNOWN_SESSION
            assert host.trim(session, number).status == expected
            contents[session] = k[:, :number], v[:, :number]
        else:
            q, tokens = halves(rng, 1, 1, 64), min(number, k.shape[1])
            if tokens:
                check(host.attend(q, tokens, session=session), q, k[:, :tokens], v[:, :tokens])
            else:
                assert host.submit(q, 1, session=session).status == abi.NvmeStatus.UNKNOWN_SESSION
