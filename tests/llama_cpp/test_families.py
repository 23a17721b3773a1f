"""Models with other attention than mini's: windows beside full layers, soft caps."""

import numpy as np
import pytest
from llama_host import SAME, Host, decode, divergences, one_by_one, tokens

pytest.importorskip("gguf", reason="the Python package gguf is missing")
from random_gguf import write_gemma


@pytest.fixture
def family(request, parts, tmp_path):
    write_gemma(tmp_path / "model.gguf", request.param)
    return Host(parts[0], tmp_path / "model.gguf", tmp_path)


def nearest(host, commands, drive, **options):
    """The divergence of each row from the nearer one of stock's kernels, and the run with the drive."""
    ours = host.run(commands, drive=drive, **options)
    assert ours.lines == ["ok"] * len(commands), ours.errors
    stock = [host.run(commands, fa=kernel, **options).logits for kernel in ("off", "on")]
    return np.minimum(*(divergences(logits, ours.logits) for logits in stock)), ours


@pytest.mark.parametrize("family", ["gemma3"], indirect=True)
@pytest.mark.parametrize("options", [{}, {"swa": 1}, {"seqs": 2}, {"seqs": 2, "unified": 1}], ids=str)
def test_windows_have_a_cache_of_their_own(family, drive, options):
    """Layers with a window use the cells of a small cache again and again, those without one have a long cache."""
    numbers = tokens(1200)
    last = options.get("seqs", 1) - 1
    commands = [decode(numbers[:600], 0, 0), decode(numbers[600:900], 0, last) if last else "add 0 0 0 0"]
    commands += one_by_one(numbers[900:904], 600, 0)
    commands += [decode(numbers[904:1150], 604, 0), *one_by_one(numbers[1150:1154], 850, 0)]
    commands += one_by_one(numbers[1160:1164], 300, last) if last else []
    found, ours = nearest(family, commands, drive, ctx=2048, ubatch=128, **options)
    assert found.max() < SAME
    assert ours.counters["attention_in_drive"] == 6 * (12 if last else 8)


@pytest.mark.parametrize("family", ["gemma2"], indirect=True)
def test_a_soft_cap_is_computed_to_the_bit_as_without_a_drive(family, drive):
    numbers = tokens(304)
    commands = [decode(numbers[:300]), *one_by_one(numbers[300:], 300)]
    stock, ours = family.run(commands, fa="on"), family.run(commands, drive=drive)
    assert ours.lines == ["ok"] * len(commands), ours.errors
    assert np.array_equal(stock.logits[0], ours.logits[0])
    assert divergences(stock.logits, ours.logits).max() < SAME
    assert ours.counters["attention_in_drive"] == 0
