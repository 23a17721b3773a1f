"""`--dtype int8`: what is rounded, what the rounded layers compute, and that drives serve such a model like others."""

import json

import pytest
import torch
from small_models import prompts
from typer.testing import CliRunner

import kvdrive
from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.generation import checkpoints
from kvdrive.generation.generate import greedy
from kvdrive.generation.matrices import CodedLinear, round_matrices
from kvdrive.identity.model import of_model


def linear(rows, columns, bias=False, spread=1.0):
    random = torch.Generator().manual_seed(5)
    made = torch.nn.Linear(columns, rows, bias=bias, dtype=torch.bfloat16)
    with torch.no_grad():
        made.weight.copy_(torch.randn(rows, columns, generator=random) * torch.logspace(-spread, spread, rows)[:, None])
        if bias:
            made.bias.copy_(torch.randn(rows, generator=random))
    return made


def stored(coded):
    """The matrix that codes and scales stand for, in float64."""
    return coded.codes.double() * coded.scale.double()[:, None]


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_each_number_is_rounded_to_the_nearest_code_of_its_row(spread):
    original = linear(96, 64, spread=spread)
    coded = CodedLinear(original)
    error = (stored(coded) - original.weight.double()).abs()
    assert (error <= coded.scale.double()[:, None] * 0.5001).all()
    assert coded.codes.abs().max() <= 127
    assert (coded.codes.abs().amax(1) >= 125).all(), "a row uses the whole range of codes"


def test_a_row_of_zeros_stays_zero():
    original = linear(32, 32)
    with torch.no_grad():
        original.weight[7] = 0
    assert (CodedLinear(original)(torch.ones(1, 32, dtype=torch.bfloat16))[0, 7]) == 0


@pytest.mark.parametrize("rows", [1, 3, 16, 17, 200])
@pytest.mark.parametrize("bias", [False, True])
def test_the_product_is_that_of_the_stored_numbers(rows, bias):
    coded = CodedLinear(linear(97, 160, bias))
    inputs = torch.randn(2, rows, 160, generator=torch.Generator().manual_seed(6)).bfloat16()
    product = inputs.double() @ stored(coded).T
    exact = product + (coded.bias.double() if bias else 0)
    found = coded(inputs)
    assert found.shape == (2, rows, 97)
    assert found.dtype == torch.bfloat16
    summed = inputs.double().abs() @ stored(coded).abs().T  # sums of float32 lose little of this
    assert ((found.double() - exact).abs() <= 2**-7 * (product.abs() + exact.abs()) + 2**-16 * summed).all()


def test_only_linear_layers_that_the_kernel_takes_are_rounded():
    model = torch.nn.ModuleDict(
        {"a": linear(64, 32), "odd": linear(64, 40), "inner": torch.nn.ModuleDict({"b": linear(32, 64)})}
    )
    assert round_matrices(model) == 2
    assert [type(part) for part in (model["a"], model["odd"], model["inner"]["b"])] == [
        CodedLinear,
        torch.nn.Linear,
        CodedLinear,
    ]


@pytest.fixture
def rounded(checkpoint):
    return checkpoints.load(str(checkpoint), "int8").model


def test_a_rounded_model_takes_half_of_the_bytes_and_is_another_model(checkpoint, rounded):
    plain = checkpoints.load(str(checkpoint), "bfloat16").model
    matrices = [name for name, part in plain.named_modules() if isinstance(part, torch.nn.Linear)]
    assert [name for name, part in rounded.named_modules() if isinstance(part, CodedLinear)] == matrices
    before = sum(plain.get_submodule(name).weight.nbytes for name in matrices)
    after = sum(buffer.nbytes for name in matrices for buffer in rounded.get_submodule(name).buffers())
    assert after == pytest.approx(before / 2, rel=0.02)
    assert of_model(rounded) != of_model(plain)
    assert rounded.dtype == torch.bfloat16
    ids = prompts(1, 40)
    near, far = plain(ids).logits.float(), rounded(ids).logits.float()
    assert 0 < (near - far).abs().mean() < 0.05 * near.std()


def test_drives_serve_a_rounded_model(rounded, target):
    ids = prompts(1, 150)
    with kvdrive.attach(rounded, target):
        first = greedy(rounded, ids, 8)
        assert torch.equal(greedy(rounded, ids, 8), first)
    with kvdrive.attach(rounded, target, spill=1):
        assert torch.equal(greedy(rounded, ids, 8), first)
    assert target.stats().attention_jobs > 0


def test_the_command_takes_it(checkpoint):
    command = ["generate", "--model", str(checkpoint), "--dtype", "int8", "--prompt", "The drive", "--threads", "1"]
    done = CliRunner().invoke(app, [*command, "--max-new-tokens", "4", "--check", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["options"]["dtype"] == "int8"


def test_a_model_without_such_matrices_is_refused(checkpoint, monkeypatch):
    monkeypatch.setattr(checkpoints, "round_matrices", lambda model: 0)
    with pytest.raises(InputError, match="take `dtype=bfloat16`"):
        checkpoints.load(str(checkpoint), "int8")
