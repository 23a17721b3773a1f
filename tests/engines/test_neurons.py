"""Sums over chosen neurons: the same bits in every instruction set, and as exact as a dense layer of torch."""

import numpy as np
import pytest
import torch
from pairs import in_pairs

native = pytest.importorskip("kvdrive._native", reason="the native extension is not built: make setup")

ISAS = ("avx512", "avx2", "neon", "scalar")
FORMATS = ("float32", "float16", "bfloat16")


def rounded(numbers, name):
    """Numbers in float32, rounded to the precision `name`."""
    return torch.from_numpy(np.asarray(numbers, np.float32)).to(getattr(torch, name)).float().numpy()


def expected(rows, activations, inputs, name):
    """The order of engine/fast/neurons.hpp, in numpy; rows [n, width]."""
    values = activations
    hidden = rows.shape[1] // (1 if inputs is None else 2)
    if inputs is not None:
        products = np.zeros((len(rows), -(-hidden // 32) * 32), np.float32)
        products[:, :hidden] = inputs * rows[:, :hidden]
        sums = np.zeros((len(rows), 32), np.float32)
        for part in np.split(products, products.shape[1] // 32, axis=1):
            sums += part
        while sums.shape[1] > 1:
            half = sums.shape[1] // 2
            sums = sums[:, :half] + sums[:, half:]
        values = rounded(activations * rounded(sums[:, 0], name), name)
    out = np.zeros(hidden, np.float32)
    for row, value in zip(rows, values, strict=True):
        out += value * row[-hidden:]
    return out


def case(name, hidden, gated, count=37, seed=1):
    """Rows as they are stored, as float32, activations, and inputs."""
    random = np.random.default_rng(seed)
    rows = random.normal(0, hidden**-0.5, (count, hidden * (2 if gated else 1))).astype(np.float32)
    rows[0, :5] = 6e-8, -6e-8, 3e-5, 0, -0.0  # also subnormal numbers of binary16
    stored = torch.from_numpy(rows).to(getattr(torch, name))
    activations = rounded(random.normal(0, 1, count), name)
    inputs = rounded(random.normal(0, 1, hidden), name) if gated else None
    return stored.view(torch.uint8).numpy(), stored.float().numpy(), activations, inputs


@in_pairs({"isa": ISAS, "gated": [True, False], "hidden": [2048, 72, 5], "name": FORMATS})
def test_sums_have_the_documented_bits(name, hidden, gated, isa, monkeypatch):
    monkeypatch.setenv("KVDRIVE_ISA", isa)
    stored, rows, activations, inputs = case(name, hidden, gated)
    memory = np.zeros((40, stored.shape[1] + 64), np.uint8)
    places = np.random.default_rng(2).permutation(40)[: len(rows)]
    memory[places, 64:] = stored
    out = np.zeros(hidden, np.float32)
    try:
        native.add_neurons(memory, name, places * memory.shape[1] + 64, activations, inputs, out)
    except (RuntimeError, ValueError) as error:
        pytest.skip(str(error))
    found = expected(rows, activations, inputs, name)
    np.testing.assert_array_equal(out.view(np.uint32), found.view(np.uint32))


@pytest.mark.parametrize("name", FORMATS)
def test_sums_are_as_exact_as_those_of_torch(name):
    """Against binary64, beside torch's dense layer of the same numbers in the same precision."""
    hidden, dtype = 1024, getattr(torch, name)
    errors = []
    for seed in range(10):
        stored, rows, activations, inputs = case(name, hidden, True, 300, seed)
        out = np.zeros(hidden, np.float32)
        native.add_neurons(stored, name, np.arange(len(rows)) * stored.shape[1], activations, inputs, out)
        wide = rows.astype(np.float64)
        exact = (activations * (wide[:, :hidden] @ inputs)) @ wide[:, hidden:]
        matrices = torch.from_numpy(rows).to(dtype)
        up = torch.nn.functional.linear(torch.from_numpy(inputs).to(dtype)[None], matrices[:, :hidden])
        values = torch.from_numpy(activations).to(dtype) * up
        dense = torch.nn.functional.linear(values, matrices[:, hidden:].T)[0].double().numpy()
        errors.append([np.sqrt(np.mean((one - exact) ** 2)) for one in (rounded(out, name), dense)])
    mine, torchs = np.mean(errors, axis=0)
    assert mine <= torchs * (1.02 if name != "float32" else 2)


def test_rows_outside_the_memory_are_refused():
    memory, out = np.zeros((4, 64), np.uint8), np.zeros(8, np.float32)
    one = np.ones(1, np.float32)
    for offset in (-4, 228, 2):
        with pytest.raises(ValueError, match="outside the memory"):
            native.add_neurons(memory, "float32", np.array([offset]), one, None, out)
    native.add_neurons(memory, "float32", np.array([224]), one, None, out)
    with pytest.raises(ValueError, match="float32, bfloat16 or float16"):
        native.add_neurons(memory, "int8", np.array([0]), one, None, out)
    with pytest.raises(ValueError, match="an offset and an activation"):
        native.add_neurons(memory, "float32", np.array([0, 4]), one, None, out)
