# SPDX-License-Identifier: Apache-2.0
"""The memory manager of LLM in a flash: which groups of neurons are in which rows, against a model in plain Python."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiled.store import Store
from csim import build

native = pytest.importorskip("kvdrive._native", reason="the native extension is not built: make setup")

ROOT = Path(__file__).resolve().parents[2]
STRIDE = 24


class PlainWindow:
    """What engine/fast/neuron_window.hpp says, as a list of [group, last call that used it]."""

    def __init__(self, capacity, calls):
        self.capacity, self.calls, self.now, self.rows = capacity, calls, 0, []

    def held(self):
        return [group for group, _ in self.rows]

    def call(self, groups, briefly, arrives):
        """The missing groups; `arrives` False: their read fails."""
        self.now += 1
        before = dict(self.rows)
        self.rows = [(group, self.now if group in groups else last) for group, last in self.rows]
        missing = [group for group in groups if group not in before]
        self.keep(lambda row: self.rows[row][1] > self.now - self.calls)
        excess = len(self.rows) + len(missing) - self.capacity
        if excess > 0:
            oldest = sorted(range(len(self.rows)), key=lambda row: (self.rows[row][1], row))[:excess]
            self.keep(lambda row: row not in oldest)
        self.rows = [(group, before[group] if group in briefly else last) for group, last in self.rows]
        if arrives:
            self.rows += [(group, self.now - self.calls if group in briefly else self.now) for group in missing]
        return missing

    def keep(self, stays):
        """Rows that stay behind the new end fill the holes in front of it, in their order."""
        kept = [row for row in range(len(self.rows)) if stays(row)]
        behind = iter([row for row in kept if row >= len(kept)])
        self.rows = [self.rows[row if row in kept else next(behind)] for row in range(len(kept))]


@st.composite
def histories(draw):
    """Groups of a layer, rows, calls that are remembered, and calls: groups, those used briefly, if reads succeed."""
    groups, calls = draw(st.integers(1, 24)), draw(st.integers(1, 4))
    capacity = draw(st.integers(1, groups))
    some = st.lists(st.integers(0, groups - 1), unique=True, max_size=capacity)
    steps = []
    for _ in range(draw(st.integers(1, 25))):
        used = draw(some)
        briefly = draw(st.lists(st.sampled_from(used), unique=True)) if used and draw(st.booleans()) else []
        steps.append((used, briefly, draw(st.integers(0, 7)) > 0))
    return groups, capacity, calls, steps


@settings(max_examples=300, deadline=None)
@given(histories())
def test_rows_are_those_of_the_plain_model(history):
    groups, capacity, calls, steps = history
    contents = np.random.default_rng(1).integers(0, 256, (groups, STRIDE), np.uint8)
    memory = np.zeros((capacity, STRIDE), np.uint8)
    window, plain = native.NeuronWindow(memory, groups, calls), PlainWindow(capacity, calls)
    for used, briefly, arrives in steps:
        missing = window.make_room(np.array(used, np.int64), np.array(briefly, np.int64))
        assert missing.tolist() == plain.call(used, briefly, arrives)
        memory[window.num_used : window.num_used + len(missing)] = contents[missing]
        if arrives:
            window.append()
        held = plain.held()
        assert window.pointer.tolist() == held
        assert window.num_used == len(held) <= capacity
        assert window.rows.tolist() == [held.index(group) if group in held else -1 for group in range(groups)]
        np.testing.assert_array_equal(memory[: len(held)], contents[held])


def test_a_call_with_impossible_groups_changes_nothing():
    memory = np.zeros((3, STRIDE), np.uint8)
    window = native.NeuronWindow(memory, 5, 2)
    none = np.zeros(0, np.int64)
    window.make_room(np.array([4, 1]), none)
    window.append()
    for used, briefly in (([5], []), ([-1], []), ([1, 1], []), ([0, 1, 2, 3], []), ([1, 2], [3]), ([1, 2], [1, 1])):
        with pytest.raises(ValueError, match="groups of the layer, each once"):
            window.make_room(np.array(used, np.int64), np.array(briefly, np.int64))
        assert window.pointer.tolist() == [4, 1]
    assert window.make_room(np.array([1, 2]), none).tolist() == [2]  # 4 was used by one of the last two calls
    assert window.pointer.tolist() == [4, 1]
    with pytest.raises(ValueError, match="whole rows"):
        native.NeuronWindow(memory, 5, 0)


def test_offsets_are_those_of_neurons_in_their_rows():
    window = native.NeuronWindow(np.zeros((3, STRIDE), np.uint8), 5, 2)
    window.make_room(np.array([4, 1]), np.zeros(0, np.int64))
    window.append()
    found = window.offsets(np.array([16, 17, 5, 7]), 4, 6)  # 4 neurons of 6 bytes are a group
    assert found.tolist() == [0, 6, STRIDE + 6, STRIDE + 18]
    for outside in (0, 20, -1):
        with pytest.raises(ValueError, match="not in memory"):
            window.offsets(np.array([outside]), 4, 6)


def test_under_sanitizers(tmp_path):
    files = [Path(__file__).with_name("random_windows.cpp"), ROOT / "sim/drive/engine/fast/neuron_window.cpp"]
    program = build.compile_program(files, "random_windows", sanitize=True, kernels_as="c++20", store=Store(tmp_path))
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "2000 calls, every row as expected\n"), done.stderr
