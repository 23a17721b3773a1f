"""Time to the first token when history is loaded by layer."""

import math

import pytest

from kvdrive.perf import shapes
from kvdrive.study.attention_store import reuse


def test_layers_that_load_ahead():
    machine = reuse.Machine(1, 0.5)
    arguments = (shapes.LLAMA_13B, machine, 16, 1024, 100)
    load, everything = reuse.load_seconds(*arguments[:4]), reuse.preloaded(*arguments)
    compute = everything - load
    none, some, all_of_them = (reuse.preloaded(*arguments, n) for n in (0, 15, 40))
    assert everything > none > some > all_of_them
    assert all_of_them == pytest.approx(compute)
    assert none == pytest.approx(load + compute / 40)  # loading is slower: the last layer waits for it
    assert math.isclose(reuse.load_seconds(shapes.LLAMA_13B, machine, 16, 1024), 16 * 1024 * 819200 / 26e9)
