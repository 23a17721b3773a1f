"""Bundles of friends: what is counted, on sets of neurons whose counts are known."""

import numpy as np

from bench.weights import coactivation


def used(*tokens):
    found = np.zeros((len(tokens), 4), bool)
    for token, neurons in enumerate(tokens):
        found[token, list(neurons)] = True
    return found


def test_friends_are_used_by_the_most_tokens_of_a_neuron():
    found = coactivation.friends_of(used({0, 1}, {0, 1, 2}, {2, 3}, {0, 2, 3}))
    assert found.tolist() == [1, 0, 0, 2]  # 2 is as often with 3: the lower number


def test_friends_that_are_both_missing_take_one_read():
    friends = np.array([1, 0, 3, 2])
    once = np.ones(4, np.int64)
    assert coactivation.reads_of(np.array([0, 1, 2, 3]), friends, once) == 2
    assert coactivation.reads_of(np.array([0, 2]), friends, once) == 2


def test_a_good_friendship_costs_no_bytes_and_a_bad_one_twice_as_many():
    pairs = used({0, 1}, {2, 3}, {0, 1}, {2, 3})
    assert coactivation.count(pairs, pairs, window=1).bytes_read == 1
    hub = used({0, 1}, {0, 2}, {0, 3}, {0, 1})  # 0 is everybody's friend, and in memory
    found = coactivation.count(hub, hub, window=1)
    assert found.missing == 1
    assert found.bytes_read == 2
    assert found.to_one == 3
