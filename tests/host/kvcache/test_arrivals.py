"""K and V on their way to the host: what a GPU rounds is what the host would round, and layers take it in time."""

import numpy as np
import pytest
import torch
from small_models import CONFIGS, prompts, random_model

from kvdrive.errors import RangeError
from kvdrive.kvcache import arrivals, copies, memory, writeback
from kvdrive.kvcache.arrivals import (
    ArrivingHalves,
    Rounded,
    arrived,
    arrives_later,
    depart,
    host_halves,
    round_there,
    to_device,
)
from kvdrive.kvcache.scaling import HeadScale
from kvdrive.nvme.rows import bytes_of_row
from kvdrive.nvme.wire import RowFormat
from kvdrive.plugins.transformers import attach

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class Event:
    """An event of a copy that is done when somebody waits for it."""

    def __init__(self, log):
        self.log = log

    def synchronize(self):
        self.log.append(self)


def rounded(tensor, stored_as=RowFormat.BINARY16):
    _, rows, facts = round_there(tensor, stored_as)
    return Rounded(rows.numpy(), stored_as, *facts.tolist(), tensor)


def states(dtype, largest=1.0, seed=3):
    """[1, 4, 40, 32] with values that become zero in binary16, and both zeros."""
    tensor = torch.randn(1, 4, 40, 32, generator=torch.Generator().manual_seed(seed))
    tensor[0, 0, 0, :3] = torch.tensor([1e-9, 0.0, -0.0])
    tensor[0, 1, 5, 7] = largest
    return tensor.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [1.0, 400.0, 8000.0, 60000.0])
@pytest.mark.parametrize("stored_as", RowFormat)
def test_a_tensor_rounded_on_its_device_converts_to_the_same_halves(dtype, largest, stored_as):
    tensor = states(dtype, largest)
    here, there = HeadScale("K", stored_as), HeadScale("K", stored_as)
    wanted, found = here.convert(tensor), there.convert(rounded(tensor, stored_as))
    np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))
    assert (there.lost, there.plain()) == (here.lost, here.plain())
    if stored_as != RowFormat.FP8:
        assert here.lost == (dtype != torch.float16)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("stored_as", RowFormat)
def test_inf_and_nan_rounded_on_the_device_are_refused(bad, stored_as):
    with pytest.raises(RangeError, match="Inf or NaN"):
        HeadScale("K", stored_as).convert(rounded(states(torch.bfloat16, bad), stored_as))


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stored_as", [RowFormat.BINARY16, RowFormat.INT8, RowFormat.FP8])
@pytest.mark.parametrize("largest", [1.0, 8000.0, 9000.0, 60000.0, 70000.0])
def test_what_is_plain_is_what_the_device_has_rounded(dtype, stored_as, largest):
    """In the first call, which leaves room for larger values, and in a later one."""
    scale = HeadScale("K", stored_as)
    for tensor in (states(dtype, largest), states(dtype, largest, seed=4)):
        leaving = depart(tensor, stored_as)
        assert isinstance(leaving, ArrivingHalves) == (tensor.numel() > arrivals._FEW)
        there, _, facts = round_there(tensor, stored_as)
        plain = scale.is_plain(int(facts[0]))
        try:
            halves = scale.convert(tensor)
        except RangeError:
            assert not plain
            return
        same = np.array_equal(halves.view(np.uint16), there.numpy().view(np.uint16)) and (scale.factors == 1).all()
        assert same or not plain
        assert plain or stored_as != RowFormat.BINARY16 or not same


@pytest.mark.parametrize("stored_as", RowFormat)
def test_the_rows_of_a_format_go_to_the_host_and_its_numbers_arrive(stored_as):
    tensor = torch.cat([states(torch.bfloat16, seed=seed) for seed in range(4)], 2)
    leaving = depart(tensor, stored_as)
    assert leaving.rows.nbytes == 4 * 160 * bytes_of_row(stored_as, 32)
    wanted = HeadScale("K", stored_as).convert(tensor)
    np.testing.assert_array_equal(leaving.wait().halves().view(np.uint16), wanted.view(np.uint16))


@pytest.fixture
def late(monkeypatch):
    """All tensors are rounded and arrive late in every layer, as from a GPU. The marks that somebody has waited for."""
    log = []
    for module in (writeback, memory):
        monkeypatch.setattr(module, "arrives_later", lambda tensor: True)
    monkeypatch.setattr(arrivals, "_FEW", 0)
    monkeypatch.setattr(copies.CopyStream, "mark", lambda stream: Event(log))
    return log


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize(
    "how",
    [
        {}, {"active": "memory"}, {"active": "memory", "spill": 64}, {"xcache": 1.0}, {"kv_format": "int8"},
        {"kv_format": "int4"}, {"kv_format": "fp8"}, {"kv_format": "int4", "active": "memory"},
    ],
    ids=str,
)  # fmt: skip
def test_late_states_give_the_same_logits(name, how, target, late, monkeypatch):
    def logits():
        model, found = random_model(CONFIGS[name]), []
        with attach(model, target, **how) as attached, torch.no_grad():
            cache = attached.cache()
            for part in (prompts(1, 20), prompts(1, 30, seed=4), *(prompts(1, 1, seed=5 + i) for i in range(4))):
                found.append(model(part, past_key_values=cache).logits)
            cache.batch.write_all()
            return torch.cat(found, 1), [(one.stored, one.tokens) for one in cache.batch.drive_layers]

    found, layers = logits()
    assert late
    monkeypatch.undo()
    expected, layers_before = logits()
    assert torch.equal(found, expected)
    assert layers == layers_before


def test_in_memory_heads_that_need_a_scale_get_it(target, late, monkeypatch):
    """Values beyond binary16: what the device has rounded is not used."""

    def logits():
        model = random_model(CONFIGS["llama"])
        with torch.no_grad():
            model.model.layers[1].self_attn.v_proj.weight *= 1e6
        with attach(model, target, active="memory") as attached, torch.no_grad():
            cache = attached.cache()
            found = [model(part, past_key_values=cache).logits for part in (prompts(1, 20), prompts(1, 30, seed=4))]
            return torch.cat(found, 1), cache.batch.drive_layers[1].value_scale.heads_scaled

    found, scaled = logits()
    assert late
    assert scaled
    monkeypatch.undo()
    assert torch.equal(found, logits()[0])


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
