"""Dense models with ReLU whose neurons stay on flash, and the memory for recent ones."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError, TargetError
from kvdrive.weights.file import WeightsFile, aligned
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.window import Window


@pytest.fixture
def opened(dense):
    """(family, memory, file) -> a checkpoint with its neurons on flash."""
    found = []

    def of(name, memory=Fraction(1), file=None):
        folder, path = dense(name)
        found.append(load(str(folder), "float32", FlashOptions(file or path, memory)))
        return found[-1]

    yield of
    for one in found:
        one.weights.close()


def greedy(model, prompt, new_tokens=12):
    return model.generate(prompt, max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)


@pytest.mark.parametrize(
    ("name", "memory"),
    [("mini_relu", Fraction(7, 10)), ("mini_relu", Fraction(1)), ("opt", Fraction(19, 20)), ("opt", Fraction(1))],
)
def test_tokens_equal_those_of_the_model_in_memory(name, memory, dense, opened):
    folder, _ = dense(name)
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = torch.randint(2, 300, (2, 20), generator=torch.Generator().manual_seed(1))
    checkpoint = opened(name, memory)
    assert torch.equal(greedy(checkpoint.model, prompt), greedy(whole, prompt))
    with torch.no_grad():
        torch.testing.assert_close(checkpoint.model(prompt).logits, whole(prompt).logits, rtol=1e-4, atol=1e-4)
    report = checkpoint.weights.report()
    assert 0.2 < report["active"] < 0.8
    assert report["hits"] > 0
    assert report["flash_bytes"] > 0
    assert (report["neurons_in_memory"] < report["neurons"]) == (memory < 1)


def test_a_zero_neuron_is_never_read(opened):
    checkpoint = opened("mini_relu")
    model, weights = checkpoint.model, checkpoint.weights
    seen = []
    for layer in model.model.layers:
        layer.mlp.act_fn.register_forward_hook(lambda module, inputs, output: seen.append(output[0]))
    before = weights.file.counters()["bytes"]
    with torch.no_grad():
        model(torch.tensor([[5]]))
    size = weights._windows[0].neurons
    groups = [int((one.view(-1, size) != 0).any(1).sum()) for one in seen]
    assert all(0 < count < 768 // size for count in groups)
    assert weights.file.counters()["bytes"] - before == 4096 * sum(groups)
    with torch.no_grad():
        model(torch.tensor([[5]]))  # the same token: everything is in the window
    assert weights.file.counters()["bytes"] - before == 4096 * sum(groups)


def test_the_window_holds_what_recent_calls_used(dense):
    _, path = dense("mini_relu")
    file = WeightsFile(path)
    array = file.manifest.neurons[1]
    expected = {}
    for group in range(array.count):
        memory = aligned(array.stride)
        file.read(array, group, memory)
        expected[group] = bytes(memory)
    window = Window(file, array, 24, calls=3)
    random = np.random.default_rng(2)
    recent = []
    for _ in range(60):
        groups = np.sort(random.choice(40, random.integers(1, 12), replace=False))
        window.hold(groups)
        recent = [*recent[-2:], set(groups.tolist())]
        held = window.pointer.tolist()
        assert len(set(held)) == len(held) <= 24
        assert set(groups.tolist()) <= set(held) <= set.union(*recent)
        for place, group in enumerate(held):
            assert bytes(window.memory[place]) == expected[group]
            assert window.offsets(np.array([group * window.neurons])) == [place * array.stride]
    file.close()
    assert 0 < window.counters.misses < window.counters.misses + window.counters.hits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])  # as stored, and not
def test_products_are_with_few_numbers_of_rows(dense, monkeypatch, dtype):
    _, path = dense("mini_relu")
    file = WeightsFile(path)
    window = Window(file, file.manifest.neurons[1], 22, calls=3)
    monkeypatch.setattr("kvdrive.weights.window._ROWS", 4 * window.neurons)
    lengths = set()
    for count in range(1, 23):
        window.hold(np.arange(count))
        rows, held = window.rows(np.arange(count), dtype)
        assert held.tolist() == list(range(count))
        lengths.add(len(rows) // window.neurons)
    assert lengths == {4, 8, 12, 16, 20, 22}
    file.close()


def test_rows_behind_the_neurons_are_finite_after_a_read_that_failed(dense, monkeypatch):
    _, path = dense("mini_relu")
    file = WeightsFile(path)
    window = Window(file, file.manifest.neurons[1], 22, calls=3)
    window.hold(np.arange(2))

    def damaged(array, missing, to, places):
        to[places] = 0xFF  # not a number, in every format
        raise TargetError("damaged")

    monkeypatch.setattr(file, "read_rows", damaged)
    with pytest.raises(TargetError, match="damaged"):
        window.hold(np.arange(5))
    assert window.holds(torch.bfloat16)
    rows, held = window.rows(np.arange(2), torch.bfloat16)
    assert len(rows) > len(held) * window.neurons
    assert rows.isfinite().all()
    file.close()


def test_active_neurons_of_few_tokens_are_added_alone(opened, monkeypatch):
    import kvdrive.weights.neurons as module

    added, stock = [], module.add_neurons
    monkeypatch.setattr(module, "add_neurons", lambda *all: (added.append(len(all[2])), stock(*all)))
    weights = opened("opt").weights
    with torch.no_grad():
        past = weights.model(torch.tensor([[5, 6, 7, 8, 9, 10]]), use_cache=True).past_key_values
        assert not added  # six tokens are multiplied
        used = sum(one.active for one in weights._sums)
        weights.model(torch.tensor([[11]]), past_key_values=past)
    assert len(added) == len(weights._sums)
    assert sum(added) == sum(one.active for one in weights._sums) - used > 0  # no neuron that is zero


def test_speculative_decoding_gives_the_same_tokens(dense):
    folder, path = dense("mini_relu")
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = torch.tensor([[5, 6, 7, 8]])
    read = []
    for accepted in (1.0, 0.4):
        flash = load(str(folder), "float32", FlashOptions(path, Fraction(7, 10), accepted=accepted))
        found = flash.model.generate(
            prompt, assistant_model=whole, max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        assert torch.equal(found, greedy(whole, prompt))
        read.append(flash.weights.report()["flash_bytes"])
        flash.close()
    assert min(read) > 0


def test_the_window_forgets_what_rejected_tokens_used(dense):
    _, path = dense("mini_relu")
    file = WeightsFile(path)
    array = file.manifest.neurons[0]
    window = Window(file, array, 12, 3)
    window.hold(np.array([1, 2, 3, 4]), briefly=np.array([3, 4]))
    assert sorted(window.pointer) == [1, 2, 3, 4]
    window.hold(np.array([5]))
    assert sorted(window.pointer) == [1, 2, 5]
    window.hold(np.array([1, 6]), briefly=np.array([1, 6]))  # 1 counts as used by the first call only
    window.hold(np.array([7]))
    assert sorted(window.pointer) == [5, 7]
    full = Window(file, array, 4, 3)
    full.hold(np.array([1, 2]))
    full.hold(np.array([2, 3, 4, 8]), briefly=np.array([2]))
    assert sorted(full.pointer) == [2, 3, 4, 8]
    file.close()


def test_a_damaged_neuron_ends_the_text(dense, opened, tmp_path):
    folder, path = dense("opt")
    copy = tmp_path / "w.kvw"
    copy.write_bytes(Path(path).read_bytes())
    checkpoint = opened("opt", file=copy)
    array = checkpoint.weights.file.manifest.neurons[1]
    contents = copy.read_bytes()
    with copy.open("r+b") as file:
        for group in range(array.count):
            file.seek(array.bundle(group))
            file.write(bytes([contents[array.bundle(group)] ^ 1]))
    with pytest.raises(TargetError, match=r"bundle \d+ of model.decoder.layers.1 in .* is damaged"):
        greedy(checkpoint.model, torch.tensor([[5, 6, 7]]))
    copy.write_bytes(contents)
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert torch.equal(greedy(checkpoint.model, torch.tensor([[5, 6, 7]])), greedy(whole, torch.tensor([[5, 6, 7]])))


def test_closed_weights_say_so(dense):
    folder, path = dense("mini_relu")
    checkpoint = load(str(folder), "float32", FlashOptions(path, Fraction(1)))
    checkpoint.close()
    with pytest.raises(TargetError, match="is closed"):
        checkpoint.model(torch.tensor([[5]]))
    assert checkpoint.weights.report()["hits"] == 0


def test_too_little_memory_says_what_is_needed(dense):
    folder, path = dense("opt")
    with pytest.raises(InputError, match=r"give `weights_memory=\d+M` or more"):
        load(str(folder), "float32", FlashOptions(path, 1 << 20))


def test_generate_with_neurons_on_flash(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = CliRunner().invoke(app, ["convert", "--model", "mini_relu", "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["neurons"] == 4 * 768
    shown = CliRunner().invoke(app, ["doctor", "--model", "mini_relu"]).stdout
    assert "neurons on flash, at least" in shown
    options = ["--weights", "flash", "--weights-memory", "80%", "--check", "--json", "--threads", "1"]
    result = CliRunner().invoke(
        app, ["generate", "--model", "mini_relu", "--prompt", "def main(", "--max-new-tokens", "8", *options]
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["check"]["identical"] == report["check"]["total"]
    assert report["weights"]["neurons_in_memory"] < report["weights"]["neurons"]
