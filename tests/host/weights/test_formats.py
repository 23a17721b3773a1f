"""Experts and neurons in codes of 8 and 4 bits: what is stored, and the same tokens as a model with these numbers."""

from fractions import Fraction

import moe_models
import numpy as np
import pytest
import torch
from pairs import by_value
from rich.console import Console

from kvdrive.generation import places
from kvdrive.weights import formats
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.making import make_file
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.whole import load_whole

QUIET = Console(quiet=True)


def bfloat16(numbers):
    """float32 rounded to nearest, ties to even, in numpy."""
    bits = numbers.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def rounded(name, numbers):
    """What the format makes of float32 numbers, in numpy."""
    flat = np.pad(numbers.ravel(), (0, -numbers.size % 32)).reshape(-1, 32)
    extreme = flat[np.arange(len(flat)), np.abs(flat).argmax(1)]
    scale = bfloat16(np.abs(extreme) / np.float32(127) if name == "int8" else extreme / np.float32(-8))[:, None]
    low, high = (-127, 127) if name == "int8" else (-8, 7)
    codes = np.clip(np.round(flat / np.where(scale == 0, 1, scale)), low, high)
    return (codes * scale).ravel()[: numbers.size].reshape(numbers.shape)


@pytest.mark.parametrize(("name", "size", "error"), [("int8", 34, 0.006), ("int4", 18, 0.09)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_become_codes_with_a_scale_for_each_group(name, size, error, dtype):
    numbers = np.random.default_rng(1).standard_normal((37, 50)).astype(np.float32)
    numbers[3] = 0
    numbers[5] *= 1e-9
    numbers[7, 7] = -6e4
    numbers = torch.from_numpy(numbers).to(dtype)
    stored = formats.encode(name, numbers)
    assert len(stored) == formats.stored_bytes(name, numbers.numel()) == -(-37 * 50 // 32) * size
    found = formats.decode(name, stored, numbers.numel(), dtype).view(37, 50)
    assert found.dtype == dtype
    expected = torch.from_numpy(rounded(name, numbers.float().numpy()))
    assert torch.equal(found, expected.to(dtype))
    calm = numbers.float()[10:]
    assert ((found.float()[10:] - calm).norm() / calm.norm()) < error


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """(family, stored precision, format) -> checkpoint folder and its file of weights."""
    made = {}

    def of(name, stored, format):
        if (name, stored) not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name, stored] = (
                places.find(name) if name == "mini_relu" else moe_models.save(name, folder, getattr(torch, stored))
            )
        folder = made[name, stored]
        return folder, make_file(folder, tmp_path_factory.mktemp("weights") / "w.kvw", format, QUIET).path

    return of


def greedy(model, prompt, new_tokens=6):
    return model.generate(prompt, max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)


@by_value(
    {
        "name, stored": [
            ("mixtral", "bfloat16"),
            ("olmoe", "float32"),
            ("gpt-oss", "float32"),
            ("mini_relu", "float32"),
        ],
        "format": ["int8", "int4"],
    }
)
def test_tokens_equal_those_of_a_model_with_the_same_numbers(name, stored, format, converted):
    folder, path = converted(name, stored, format)
    options = FlashOptions(path, Fraction(6, 10))
    flash, whole = load(str(folder), "auto", options), load_whole(str(folder), "auto", options)
    prompt = torch.randint(2, 256, (2, 20), generator=torch.Generator().manual_seed(3))
    assert torch.equal(greedy(flash.model, prompt), greedy(whole.model, prompt))
    assert flash.weights.report()["flash_bytes"] > 0
    flash.weights.close()


@pytest.mark.parametrize(("format", "smaller"), [("int8", 1.8), ("int4", 3.2)])
def test_the_model_in_memory_has_the_numbers_of_the_file(format, smaller, converted):
    folder, path = converted("gpt-oss", "bfloat16", format)
    plain = moe_models.in_memory(folder, torch.bfloat16).state_dict()
    found = load_whole(str(folder), "auto", FlashOptions(path)).model.state_dict()
    assert found.keys() == plain.keys()
    for name, tensor in plain.items():
        if "experts" in name and not name.endswith("bias"):
            each = [torch.from_numpy(rounded(format, one.float().numpy())) for one in tensor]
            assert torch.equal(found[name], torch.stack(each).to(torch.bfloat16))
        else:
            assert torch.equal(found[name], tensor)
    _, as_stored = converted("gpt-oss", "bfloat16", "auto")
    experts = [WeightsFile(one).manifest.experts[0] for one in (as_stored, path)]
    sizes = [sum(part.bytes for part in one.parts if len(part.shape) > 1) for one in experts]
    assert sizes[0] / sizes[1] > smaller


def test_groups_of_neurons_fill_their_pages(converted):
    for format in formats.CODES:
        _, path = converted("mini_relu", "float32", format)
        for array in WeightsFile(path).manifest.neurons:
            assert array.stride % 4096 == 0
            assert array.parts[0].bytes >= array.stride * 7 / 8
            assert array.parts[0].shape[0] <= 32


def test_sessions_of_other_formats_are_not_found(converted):
    from kvdrive.identity.model import of_model

    found = set()
    for format in ("auto", "int8", "int4") * 2:
        folder, path = converted("olmoe", "bfloat16", format)
        checkpoint = load(str(folder), "auto", FlashOptions(path, Fraction(1)))
        found.add(of_model(checkpoint.model))
        checkpoint.weights.close()
    assert len(found) == 3
