"""K and V on their way to the host: what a GPU rounds is what the host would round, and layers take it in time."""

import numpy as np
import pytest
import torch
from small_models import CONFIGS, prompts, random_model, step_logits

from kvdrive.errors import RangeError
from kvdrive.kvcache import writeback
from kvdrive.kvcache.arrivals import Arriving, Rounded, arrived, arrives_later, host_halves, round_there, to_device
from kvdrive.kvcache.scaling import HeadScale
from kvdrive.plugins.transformers import attach

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class Event:
    """An event of a copy that is done when somebody waits for it."""

    def __init__(self, log):
        self.log = log

    def synchronize(self):
        self.log.append(self)


def rounded(tensor):
    halves, facts = round_there(tensor)
    return Rounded(halves.numpy(), *facts.tolist(), tensor)


def states(dtype, largest=1.0, seed=3):
    """[1, 4, 40, 32] with values that become zero in binary16, and both zeros."""
    tensor = torch.randn(1, 4, 40, 32, generator=torch.Generator().manual_seed(seed))
    tensor[0, 0, 0, :3] = torch.tensor([1e-9, 0.0, -0.0])
    tensor[0, 1, 5, 7] = largest
    return tensor.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [1.0, 8000.0, 60000.0])
def test_a_tensor_rounded_on_its_device_converts_to_the_same_halves(dtype, largest):
    tensor = states(dtype, largest)
    here, there = HeadScale("K"), HeadScale("K")
    wanted, found = here.convert(tensor), there.convert(rounded(tensor))
    np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))
    assert (there.lost, there.plain()) == (here.lost, here.plain())
    assert here.lost == (dtype != torch.float16)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_inf_and_nan_rounded_on_the_device_are_refused(bad):
    with pytest.raises(RangeError, match="Inf or NaN"):
        HeadScale("K").convert(rounded(states(torch.bfloat16, bad)))


def test_on_a_cpu_nothing_is_copied():
    tensor = states(torch.float32)
    assert not arrives_later(tensor)
    assert arrived(tensor).data_ptr() == tensor.data_ptr()


def test_answers_take_the_precision_of_the_model():
    halves = host_halves((2, 3), torch.device("cpu"))
    halves[:] = 1.5
    found = to_device(torch.from_numpy(halves), torch.empty(0, dtype=torch.bfloat16))
    assert found.dtype == torch.bfloat16
    assert (found == 1.5).all()


@pytest.fixture
def late(monkeypatch):
    """K and V arrive late in every layer, as from a GPU. The events that somebody has waited for."""
    log = []

    def depart_late(tensor):
        return Arriving(tensor.detach(), round_there(tensor.detach()), Event(log))

    monkeypatch.setattr(writeback, "arrives_later", lambda tensor: True)
    monkeypatch.setattr(writeback, "depart", depart_late)
    return log


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_late_states_give_the_same_logits(name, target, late, monkeypatch):
    found = step_logits(random_model(CONFIGS[name]), target)
    assert late
    monkeypatch.undo()
    assert torch.equal(found, step_logits(random_model(CONFIGS[name]), target))


def test_a_layer_takes_its_states_when_the_next_one_has_its_own(target, late):
    model = random_model(CONFIGS["llama"])
    with attach(model, target) as attached, torch.no_grad():
        cache = attached.cache()
        waited = []
        model.model.layers[1].register_forward_hook(lambda *_: waited.append(len(late)))
        model(prompts(1, 20), past_key_values=cache)
        assert waited == [2]  # K and V of the first layer, while the second one computes
        assert len(late) == 4
        assert [layer.stored for layer in cache.batch.drive_layers] == [20, 20]


def test_a_failed_call_leaves_nothing_of_its_late_states(target, late):
    model = random_model(CONFIGS["llama"])
    fail = []

    def stop(*_):
        if fail:
            raise ValueError(fail.pop())

    with attach(model, target) as attached, torch.no_grad():
        cache = attached.cache()
        model.model.layers[1].register_forward_hook(stop)
        model(prompts(1, 20), past_key_values=cache)
        wanted = model(prompts(1, 1, seed=5), past_key_values=cache).logits
        cache.crop(-1)
        fail.append("stopped")
        with pytest.raises(ValueError, match="stopped"):
            model(prompts(1, 30, seed=4), past_key_values=cache)
        assert cache.get_seq_length() == 20
        assert torch.equal(model(prompts(1, 1, seed=5), past_key_values=cache).logits, wanted)


def test_a_replay_ends_with_all_states_taken(target, late):
    model = random_model(CONFIGS["llama"])
    with attach(model, target, on_failure="recompute") as attached, torch.no_grad():
        cache = attached.cache()
        model(prompts(1, 20), past_key_values=cache)
        wanted = model(prompts(1, 1, seed=5), past_key_values=cache).logits
        cache.crop(-1)
        attached._calls.recovery.recompute(cache.batch)
        assert [layer.stored for layer in cache.batch.drive_layers] == [20, 20]
        assert torch.equal(model(prompts(1, 1, seed=5), past_key_values=cache).logits, wanted)
