"""Low-rank predictors of neurons: training, what they cost, and gates on flash."""

import argparse
import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from rich.console import Console
from small_models import CONFIGS, random_model
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation import places
from kvdrive.weights.calibrate import nats_of
from kvdrive.weights.cuts import Cost
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.making import make_file
from kvdrive.weights.neurons import neurons_of
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.predictor import Predictor, Predictors, install_predictors, read_predictors
from kvdrive.weights.training import Seen, Training, errors_of, train

QUIET = Console(quiet=True)


def seen(tokens, neurons=48, width=16, noise=False, seed=1):
    """Neurons of which a matrix of rank 2 says whether they are used; or nothing does."""
    random = torch.Generator().manual_seed(7)
    rule = torch.randn(width, 2, generator=random) @ torch.randn(2, neurons, generator=random)
    random = torch.Generator().manual_seed(seed)
    inputs = 5 * torch.randn(tokens, width, generator=random)
    used = inputs @ rule > 8
    return Seen(inputs, torch.rand(tokens, neurons, generator=random) < 0.2 if noise else used)


def test_training_finds_a_rule_of_low_rank():
    made, errors = train(seen(1500), seen(200, seed=2), Training(rank=4, epochs=80, rate=1e-2))
    assert (made.narrow.shape, made.wide.shape, made.bias.shape) == ((4, 16), (48, 4), (48,))
    assert errors.missed < 0.05
    assert errors.needless < 0.1
    fresh = seen(200, seed=3)
    again = errors_of(made, fresh)
    foreseen = (fresh.inputs @ made.narrow.T) @ made.wide.T + made.bias > 0
    assert again.missed == pytest.approx(float((fresh.used & ~foreseen).sum() / fresh.used.sum()))
    assert again.foreseen == pytest.approx(float(foreseen.float().mean()))


def test_training_stops_when_held_out_text_gains_nothing():
    how = Training(rank=8, epochs=200, patience=3, rate=1e-2)
    _, errors = train(seen(300, noise=True), seen(200, noise=True, seed=2), how)
    assert errors.epochs < 30
    assert errors.missed + errors.needless == pytest.approx(1, abs=0.1)  # as good as chance, both kinds weigh the same


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Where the gates are -> the file of weights of mini_relu with predictors beside it; and what training said."""
    torch.set_num_threads(1)  # the fixture that does this is of single tests
    folder = tmp_path_factory.mktemp("trained")
    files = {gates: folder / f"{gates}.kvw" for gates in ("memory", "flash")}
    said = {}
    for gates, file in files.items():
        command = ["convert", "--model", "mini_relu", "--weights-file", str(file), "--gates", gates]
        assert CliRunner().invoke(app, command).exit_code == 0
        options = ["--rank", "32", "--epochs", "12", "--windows", "4", "--tokens", "256", "--json"]
        options += ["--text", argparse.__file__]
        command = ["train-predictor", "--model", "mini_relu", "--weights-file", str(file), *options]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        said[gates] = json.loads(result.stdout)
    return files, said


def test_training_says_how_often_it_is_wrong_and_what_that_costs(trained):
    files, said = trained
    assert said["memory"]["cost"] == pytest.approx(said["flash"]["cost"])
    cost, errors = said["memory"]["cost"], said["memory"]["errors"]
    assert cost["before"] < cost["after"] < 100 * cost["before"]
    assert len(errors) == 4
    for one in errors.values():
        assert 0 < one["missed"] + one["needless"] < 0.9  # better than chance
        assert 1 <= one["epochs"] <= 12
    for file in files.values():
        weights = WeightsFile(file)
        kept = read_predictors(file, weights.manifest)
        weights.close()
        assert kept.cost.after == cost["after"]
        assert {name: one.missed for name, one in kept.errors.items()} == pytest.approx(
            {name: one["missed"] for name, one in errors.items()}
        )


def foreseeing(folder, predictors):
    """The model in memory in which neurons that are not foreseen are zero."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for name, one in predictors.parts.items():
        mlp = model.get_submodule(name)

        def forward(x, mlp=mlp, one=one):
            wanted = torch.nn.functional.linear(torch.nn.functional.linear(x, one.narrow), one.wide, one.bias) > 0
            return mlp.down_proj(torch.where(wanted, mlp.act_fn(mlp.gate_proj(x)), 0) * mlp.up_proj(x))

        mlp.forward = forward
    return model


def greedy(model, prompt, new_tokens=10):
    return model.generate(prompt, max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)


@pytest.mark.parametrize("gates", ["memory", "flash"])
def test_tokens_equal_those_of_the_model_in_memory_with_the_predictor(gates, trained):
    file = trained[0][gates]
    options = FlashOptions(file, Fraction(9, 10), ffn="predictor")
    flash = load("mini_relu", "float32", options)
    whole = foreseeing(places.find("mini_relu"), read_predictors(file, flash.weights.file.manifest))
    prompt = torch.randint(2, 300, (2, 12), generator=torch.Generator().manual_seed(1))
    assert torch.equal(greedy(flash.model, prompt), greedy(whole, prompt))
    with torch.no_grad():
        torch.testing.assert_close(flash.model(prompt).logits, whole(prompt).logits, rtol=1e-4, atol=1e-4)
    report = flash.weights.report()
    assert 0 < report["active"] < 1
    assert any(".gate_proj" in name for name, _ in flash.model.named_parameters()) == (gates == "memory")
    flash.close()


def test_what_is_not_foreseen_is_not_read(trained):
    file = trained[0]["flash"]
    flash = load("mini_relu", "float32", FlashOptions(file, Fraction(1), ffn="predictor"))
    predictors, groups = read_predictors(file, flash.weights.file.manifest), []
    size, stride = (
        flash.weights.file.manifest.neurons[0].parts[0].shape[0],
        flash.weights.file.manifest.neurons[0].stride,
    )
    for name, one in predictors.parts.items():

        def hook(module, inputs, one=one):
            padded = torch.nn.functional.pad(one.foreseen(inputs[0][0]), (0, -768 % size))
            groups.append(int(padded.view(-1, size).any(1).sum()))

        flash.model.get_submodule(name).register_forward_pre_hook(hook)
    before = flash.weights.file.counters()["bytes"]
    with torch.no_grad():
        flash.model(torch.tensor([[5]]))
    assert flash.weights.file.counters()["bytes"] - before == stride * sum(groups)
    assert 0 < sum(groups) < 4 * -(-768 // size)
    flash.close()


def test_gates_on_flash_take_no_memory_and_change_no_token(trained):
    flash = load("mini_relu", "float32", FlashOptions(trained[0]["flash"], Fraction(8, 10)))
    held = load("mini_relu", "float32", FlashOptions(trained[0]["memory"], Fraction(9, 10)))
    whole = AutoModelForCausalLM.from_pretrained(places.find("mini_relu"), dtype=torch.float32).eval()
    prompt = torch.randint(2, 300, (2, 12), generator=torch.Generator().manual_seed(1))
    assert torch.equal(greedy(flash.model, prompt), greedy(whole, prompt))
    sizes = [one.weights.report()["resident_bytes"] for one in (held, flash)]
    assert sizes[0] - sizes[1] == 4 * sum(layer.mlp.gate_proj.weight.numel() for layer in whole.model.layers)
    assert flash.weights.report()["active"] == 1  # nothing says which neurons are zero
    flash.close()
    held.close()


def test_generate_says_what_the_predictor_costs(trained, caplog):
    files, said = trained
    command = ["generate", "--model", "mini_relu", "--weights", "flash", "--weights-file", str(files["flash"])]
    command += ["--weights-memory", "90%", "--prompt", "def main(", "--max-new-tokens", "6", "--threads", "1"]
    result = CliRunner().invoke(app, [*command, "--ffn", "predictor", "--check", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["check"]["identical"] == 6
    cost = said["flash"]["cost"]
    assert f"ffn predictor: perplexity {cost['before']:.3f} -> {cost['after']:.3f}" in caplog.text


def test_predictors_of_other_models_are_refused(trained, tmp_path):
    file = make_file(places.find("mini"), tmp_path / "w.kvw", "auto", QUIET).path
    options = FlashOptions(file, Fraction(1), ffn="predictor")
    with pytest.raises(InputError, match="`kvdrive train-predictor` makes them"):
        load("mini", "auto", options)
    kept = tmp_path / "w.kvw.predictor"
    kept.write_bytes((trained[0]["memory"].parent / "memory.kvw.predictor").read_bytes())
    with pytest.raises(InputError, match="is of another checkpoint"):
        load("mini", "auto", options)
    kept.write_bytes(b"damaged")
    with pytest.raises(InputError, match="is damaged"):
        load("mini", "auto", options)


def test_only_gates_go_to_flash(tmp_path):
    import moe_models

    folder = moe_models.save("mixtral", tmp_path)
    with pytest.raises(UnsupportedError, match="has no gates that can be on flash"):
        make_file(folder, tmp_path / "w.kvw", "auto", QUIET, gates=True)


def test_a_model_on_another_device_is_measured_there():
    """The device is torch's "meta", which computes shapes: mixed devices are errors there, too."""
    model = random_model(CONFIGS["llama"]).to("meta")
    parts = {}
    for name, block in neurons_of(model).items():
        neurons, hidden = block.module.up_proj.weight.shape
        parts[name] = Predictor(torch.zeros(4, hidden), torch.zeros(neurons, 4), torch.zeros(neurons))
    install_predictors(model, Predictors(parts, {}, Cost(1, 1, 0)))
    assert nats_of(model, np.arange(9)).shape == (8,)


def test_predictions_have_a_row_for_each_token():
    one = Predictor(torch.eye(2), torch.tensor([[1.0, 0], [0, 1], [-1, 0]]), torch.tensor([0, -1.0, 0]))
    inputs = torch.tensor([[[2.0, 0.5]], [[-1, 3]]], dtype=torch.bfloat16)
    assert one.foreseen(inputs).tolist() == [[[True, False, False]], [[False, True, True]]]
