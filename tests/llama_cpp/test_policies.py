"""Steps that read a share of K and V: what is read, what is left unread, and how close results stay."""

import re

import numpy as np
import pytest
from llama_host import SAME, decode, divergences, one_by_one, tokens

DEPTH, STEPS = 2048, 8
GROUPS = {"KVDRIVE_ATTENTION": "groups", "KVDRIVE_RATIO": "1/8"}


@pytest.fixture
def steps(host, tmp_path):
    """Runs a prompt and steps. The result: the steps' logits, and the run."""
    numbers = (tokens(64) * 40)[: DEPTH + STEPS]  # repeated, so that heads look for something
    commands = [decode(numbers[:DEPTH]), *one_by_one(numbers[DEPTH:], DEPTH)]

    def run(**variables):
        done = host.run(commands, drive=tmp_path / "drive.kv", ctx=DEPTH + STEPS, **variables)
        (tmp_path / "drive.kv").unlink()
        assert done.lines == ["ok"] * len(commands), done.errors
        return done.logits[1:], done

    return run


def share(done):
    """The share of K and V that attention read, the index counted."""
    return done.counters["drive"]["attention_bytes_read"] / done.counters["drive"]["attention_bytes"]


@pytest.mark.parametrize("form", ["f16", "int8", "int4"])
def test_groups_read_a_share_in_every_format(steps, form):
    exact, all_read = steps(KVDRIVE_FORMAT=form)
    chosen, part_read = steps(KVDRIVE_FORMAT=form, **GROUPS)
    assert share(all_read) == pytest.approx(1, abs=0.03)  # rows are read in whole pages
    # An eighth, rounded up to pages, and 2 bits for each number of K: more beside rows of fewer bits.
    assert share(part_read) < {"f16": 0.25, "int8": 0.45, "int4": 0.75}[form]
    assert 1e-9 < np.median(divergences(exact, chosen)) < 1e-3
    assert 0 < part_read.counters["drive"]["unread_per_million"] < 1e6
    said = re.search(r"steps read ([\d.]+) % of K and V[^%]* left ([\d.]+) % of the softmax unread", part_read.errors)
    assert float(said[1]) == pytest.approx(100 * share(part_read), abs=0.1)
    assert float(said[2]) == pytest.approx(part_read.counters["drive"]["unread_per_million"] / 1e4, abs=0.01)
    assert "unread" not in all_read.errors


def test_a_limit_of_the_unread_share_reads_more(steps):
    _, free = steps(**GROUPS)
    _, limited = steps(**GROUPS, KVDRIVE_UNREAD="0.05")
    unread = [done.counters["drive"]["unread_per_million"] for done in (limited, free)]
    assert unread[0] < 50_000 < unread[1]
    assert share(limited) > share(free)


def test_more_units_come_closer(steps):
    exact, _ = steps()
    distances = [
        np.median(divergences(exact, steps(**GROUPS | {"KVDRIVE_RATIO": ratio})[0])) for ratio in ("1/8", "3/4")
    ]
    assert distances[1] < distances[0] / 4


def test_a_ratio_of_one_is_exact(steps):
    exact, _ = steps()
    whole, done = steps(KVDRIVE_ATTENTION="groups", KVDRIVE_RATIO="1")
    assert np.array_equal(exact, whole)
    assert done.counters["drive"]["unread_per_million"] == 0


def test_a_sequence_that_is_copied_and_cut_goes_on_with_groups(host, drive):
    numbers = tokens(1400)
    commands = [decode(numbers[:1000]), "cp 0 1", "rm 0 700 -1", *one_by_one(numbers[1000:1004], 700)]
    commands += one_by_one(numbers[1004:1008], 1000, 1)
    exact = host.run(commands, fa="off", seqs=2, ctx=4096)
    ours = host.run(commands, drive=drive, seqs=2, ctx=4096, KVDRIVE_ATTENTION="groups", KVDRIVE_RATIO="1/2")
    assert ours.lines == ["ok"] * len(commands), ours.errors
    assert SAME < np.median(divergences(exact.logits[1:], ours.logits[1:])) < 0.1
