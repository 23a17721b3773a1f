"""FATReLU: thresholds for dense models on flash, what is read with them, and what they cost."""

import json
from fractions import Fraction

import pytest
import torch
from pairs import some_quick
from rich.console import Console
from small_models import CONFIGS, random_model
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.weights.cuts import Cost, Cuts, install_cuts, keep_cuts, origin_of, read_cuts
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.making import make_file
from kvdrive.weights.neurons import neurons_of
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.predictor import Errors, Predictor, Predictors, keep_predictors, read_predictors


class Fatrelu(torch.nn.Module):
    """An activation function whose small results are zero."""

    def __init__(self, stock, threshold):
        super().__init__()
        self.stock, self.threshold = stock, threshold

    def forward(self, x):
        found = self.stock(x).clone()
        found[(found > -self.threshold) & (found < self.threshold)] = 0
        return found


def whole(folder, threshold=None):
    """The model in memory."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for module in model.modules():
        for name in ("act_fn", "activation_fn"):
            if threshold is not None and isinstance(getattr(module, name, None), torch.nn.Module):
                setattr(module, name, Fatrelu(getattr(module, name), threshold))
    return model


def greedy(model, prompt, new_tokens=10):
    return model.generate(prompt, max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)


def ids(rows, tokens):
    return torch.randint(2, 300, (rows, tokens), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "threshold"),
    some_quick(
        [("mini_relu", 0.1), ("mini", 0.08), ("llama", 0.1), ("qwen3", 0.1), ("opt", 0.2)],
        [("llama", 0.1), ("mini", 0.08), ("opt", 0.2)],
    ),
)
def test_tokens_equal_those_of_the_model_in_memory_with_the_threshold(name, threshold, dense):
    folder, path = dense(name)
    model = whole(folder, threshold)
    flash = load(str(folder), "float32", FlashOptions(path, Fraction(9, 10), ffn=f"fatrelu:{threshold}"))
    assert torch.equal(greedy(flash.model, ids(2, 12)), greedy(model, ids(2, 12)))
    with torch.no_grad():
        logits = model(ids(1, 20)).logits
        torch.testing.assert_close(flash.model(ids(1, 20)).logits, logits, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(logits, whole(folder)(ids(1, 20)).logits, rtol=1e-4, atol=1e-4)
    assert 0 < flash.weights.report()["active"] < 1
    flash.close()


def test_neurons_below_the_threshold_are_not_read(dense):
    folder, path = dense("mini")
    flash = load(str(folder), "auto", FlashOptions(path, Fraction(1), ffn="fatrelu:0.5"))
    seen = []
    for layer in flash.model.model.layers:
        layer.mlp.act_fn.register_forward_hook(lambda module, inputs, output: seen.append(output[0]))
    before = flash.weights.file.counters()["bytes"]
    with torch.no_grad():
        flash.model(torch.tensor([[5]]))
    size = flash.weights.file.manifest.neurons[0].parts[0].shape[0]
    groups = sum(int((one.view(-1, size).abs() >= 0.5).any(1).sum()) for one in seen)
    assert 0 < groups < 4 * 768 // size
    assert flash.weights.file.counters()["bytes"] - before == 4096 * groups
    flash.close()


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_model_whose_neurons_are_never_zero_keeps_what_fits(name, dense):
    folder, path = dense(name)
    flash = load(str(folder), "float32", FlashOptions(path, Fraction(9, 10)))
    assert torch.equal(greedy(flash.model, ids(2, 12)), greedy(whole(folder), ids(2, 12)))
    report = flash.weights.report()
    assert report["active"] == 1
    held = report["neurons_in_memory"] / report["neurons"]
    assert held / 2 < report["hit_rate"] < held < 1
    flash.close()


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_sparsify_finds_thresholds_and_says_what_they_cost(tmp_path, caplog):
    file, text = tmp_path / "w.kvw", tmp_path / "text.txt"
    model = ("--model", "mini", "--weights-file", file)
    text.write_text("def main(argument):\n    return [one for one in argument if one]\n\n\n" * 80)
    assert run("convert", *model).exit_code == 0
    asked = ("--shares", "50%,90%", "--text", text, "--windows", "1", "--tokens", "128", "--json")
    found = []
    for flash in ((), ("--weights", "flash", "--weights-memory", "90%")):
        result = run("sparsify", *model, *asked, *flash)
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout))
    for memory, flash in zip(found[0].values(), found[1].values(), strict=True):
        assert flash["cost"]["after"] == pytest.approx(memory["cost"]["after"], rel=1e-3)
    half, most = found[0].values()
    costs = half["cost"], most["cost"]
    assert [round(cost["zeros"], 1) for cost in costs] == [0.5, 0.9]
    assert costs[0]["before"] == costs[1]["before"] < costs[1]["after"]
    assert all(half["thresholds"][name] < most["thresholds"][name] for name in half["thresholds"])

    generate = ("generate", *model, "--weights", "flash", "--weights-memory", "90%", "--prompt", "def main(")
    result = run(*generate, "--max-new-tokens", "8", "--threads", "1", "--ffn", "fatrelu:90%", "--check", "--json")
    assert result.exit_code == 0, result.output
    assert f"perplexity {costs[1]['before']:.3f} -> {costs[1]['after']:.3f}" in caplog.text
    report = json.loads(result.stdout)
    assert report["check"]["identical"] == report["check"]["total"]
    assert report["weights"]["active"] < 0.4
    assert "`kvdrive sparsify --shares 60%`" in str(run(*generate, "--ffn", "fatrelu:60%").exception)
    result = run(*generate, "--max-new-tokens", "2", "--ffn", "fatrelu:0.1")
    assert result.exit_code == 0, result.output
    assert "ffn fatrelu:0.1: nobody has measured what it costs" in caplog.text

    kept = file.with_name("w.kvw.fatrelu.json")
    kept.write_text("{")
    assert "is damaged" in str(run(*generate, "--ffn", "fatrelu:90%").exception)


@pytest.mark.parametrize("ffn", ["sparse", "fatrelu:", "fatrelu:-1", "fatrelu:nan", "fatrelu:x%"])
def test_other_words_for_ffn_are_refused(ffn, dense):
    folder, path = dense("llama")
    with pytest.raises(InputError):
        load(str(folder), "auto", FlashOptions(path, Fraction(1), ffn=ffn))


def test_thresholds_belong_to_one_layer_each():
    model = random_model(CONFIGS["llama"])
    first, second = model.model.layers
    second.mlp.act_fn = first.mlp.act_fn
    with pytest.raises(UnsupportedError, match="share their activation function"):
        install_cuts(model, Cuts(dict.fromkeys(neurons_of(model), 0.1)))


def test_a_feed_forward_part_that_computes_something_else_stays_in_memory():
    model = random_model(CONFIGS["llama"])
    assert len(neurons_of(model)) == 2

    class Scaled(type(model.model.layers[0].mlp)):
        def forward(self, x):
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x)) * self.scale

    model.model.layers[0].mlp.__class__ = Scaled
    assert list(neurons_of(model)) == ["model.layers.1.mlp"]
    del model.model.layers[1].mlp.act_fn
    model.model.layers[1].mlp.act_fn = torch.nn.functional.silu
    assert not neurons_of(model)


def test_sessions_with_other_thresholds_are_not_found(dense):
    from kvdrive.identity.model import of_model

    folder, path = dense("llama")
    found = set()
    for ffn in ("exact", "fatrelu:0.1", "fatrelu:0.2") * 2:
        flash = load(str(folder), "float32", FlashOptions(path, Fraction(1), ffn=ffn))
        found.add(of_model(flash.model))
        flash.close()
    assert len(found) == 3


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """The manifest of small weights in a format, after changes of the configuration; `other`: with another number."""

    def of(format="auto", other=False, **changes):
        folder = tmp_path_factory.mktemp("origin")
        model = random_model(CONFIGS["llama"])
        model.config.update(changes)
        if other:
            model.model.layers[1].mlp.down_proj.weight.data[3, 5] += 0.001
        model.save_pretrained(folder)
        file = WeightsFile(make_file(folder, folder / "w.kvw", format, Console(quiet=True)).path)
        file.close()
        return file.manifest

    return of


def test_an_origin_is_that_of_a_configuration_and_of_numbers_in_any_format(manifest):
    one = origin_of(manifest())
    assert {origin_of(manifest(format)) for format in ("float16", "int8", "int4")} == {one}
    assert origin_of(manifest(transformers_version="0.1", use_cache=False)) == one
    others = {
        origin_of(manifest(other=True)),
        origin_of(manifest(rms_norm_eps=0.5)),
        origin_of(manifest(a_field_of_tomorrow=1)),
    }
    assert len(others | {one}) == 4


@pytest.mark.parametrize("changes", [{"other": True}, {"rms_norm_eps": 0.5}], ids=["numbers", "configuration"])
def test_thresholds_and_predictors_of_another_model_are_not_used(manifest, tmp_path, changes):
    """Though they lie beside a file of the same name."""
    ours, theirs, cost = manifest(), manifest(**changes), Cost(1.0, 2.0, 0.5)
    names = [array.name for array in ours.neurons]
    cuts = {"50%": Cuts(dict.fromkeys(names, 0.1), cost)}
    weights = tmp_path / "w.kvw"
    keep_cuts(weights, ours, cuts)
    assert read_cuts(weights, ours) == cuts
    assert read_cuts(weights, theirs) == {}
    keep_cuts(weights, theirs, {"60%": cuts["50%"]})
    assert list(read_cuts(weights, theirs)) == ["60%"]
    assert read_cuts(weights, ours) == {}

    parts = {name: Predictor(torch.ones(2, 256), torch.ones(256, 2), torch.ones(256)) for name in names}
    errors = dict.fromkeys(names, Errors(0.5, 0.5, 0.1, 0.1, 1))
    keep_predictors(weights, ours, Predictors(parts, errors, cost))
    assert read_predictors(weights, ours).errors == errors
    with pytest.raises(InputError, match="is of another checkpoint: run `kvdrive train-predictor` again"):
        read_predictors(weights, theirs)
