"""Scales of K and V in e4m3 that a checkpoint ships: which files have them, and what they do to K, V and the text."""

import json
import logging
import shutil
from fractions import Fraction

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from attached_drives import LOADING_PAYS
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import some_quick
from safetensors.torch import load_file, save_file
from small_models import CONFIGS, prompts, random_model
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.cache_utils import DynamicLayer

from kvdrive import abi
from kvdrive.errors import InputError, RangeError
from kvdrive.eval.partial import digest
from kvdrive.generation import checkpoints
from kvdrive.generation.generate import greedy
from kvdrive.identity.model import of_model
from kvdrive.kvcache.scaling import HeadScale
from kvdrive.kvcache.shipped_scales import LayerScales, read_scales, scales_of
from kvdrive.nvme.wire import RowFormat
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator

K, V = (0.0057, 0.0079), (0.0061, 0.0073)  # by layer: a few values of the tiny checkpoint are beyond 448 of them
SCHEME = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}
NAMES = {
    "vllm": {"k": "self_attn.k_scale", "v": "self_attn.v_scale"},
    "compressed-tensors": {"k": "self_attn.k_proj.output_scale", "v": "self_attn.v_proj.output_scale"},
    "modelopt": {"k": "self_attn.k_proj.k_scale", "v": "self_attn.v_proj.v_scale"},
    "fused": {"k": "self_attn.qkv_proj.k_scale", "v": "self_attn.qkv_proj.v_scale"},
    "vllm's own": {"k": "self_attn.attn.k_scale", "v": "self_attn.attn.v_scale"},
}
POSITIVE = np.array(
    [f * 2.0**-9 if e == 0 else (8 + f) * 2.0 ** (e - 10) for e in range(16) for f in range(8) if (e, f) != (15, 7)]
)  # every number of e4m3 that is not negative, by its code


def nearest(values):
    """The e4m3 numbers nearest to `values`, ties to even codes, with 448 for larger ones. Tries both neighbours."""
    magnitudes = np.minimum(np.abs(values.astype(np.float64)), 448.0)
    above = np.minimum(np.searchsorted(POSITIVE, magnitudes), POSITIVE.size - 1)
    below = np.maximum(above - 1, 0)
    up, down = POSITIVE[above] - magnitudes, magnitudes - POSITIVE[below]
    codes = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    return np.copysign(POSITIVE[codes], values)


def put(folder, tensors):
    """Write a folder's tensors, and nothing else."""
    folder.mkdir(exist_ok=True)
    save_file({name: torch.as_tensor(value) for name, value in tensors.items()}, folder / "scales.safetensors")
    return folder


def ship(folder, k=K, v=V, names=NAMES["vllm"]):
    """Add scales to the weights of a checkpoint, as one number for each layer."""
    weights = load_file(folder / "model.safetensors")
    weights = {name: one for name, one in weights.items() if "scale" not in name}
    for layer in range(2):
        for kind, scales in (("k", k), ("v", v)):
            weights[f"model.layers.{layer}.{names[kind]}"] = torch.tensor(scales[layer])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def note_scheme(folder, **scheme):
    """Say in config.json that K and V are quantised, as llm-compressor does."""
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "compressed-tensors", "config_groups": {}, "format": "dense"}
    config["quantization_config"]["kv_cache_scheme"] = SCHEME | scheme
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def shipped(checkpoint, tmp_path):
    """A checkpoint's folder with a tokenizer and scales."""
    folder = tmp_path / "shipped"
    shutil.copytree(checkpoint, folder)
    note_scheme(ship(folder))
    return folder


def loaded(folder):
    return checkpoints.load(str(folder)).model


def drive_at(path):
    return Emulator(path, "fast", capacity_bytes=1 << 26)


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_scales_are_found_under_the_names_that_vllm_knows(tmp_path, names, shape):
    tensors = {"model.layers.0.self_attn.k_proj.weight_scale": 3.0, "model.layers.1.mlp.up_proj.input_scale": 4.0}
    tensors |= {"model.layers.0.self_attn.q_scale": 5.0, "lm_head.weight": torch.ones(3)}
    for layer in range(2):
        tensors[f"model.layers.{layer}.{names['k']}"] = torch.full(shape, K[layer])
        tensors[f"model.layers.{layer}.{names['v']}"] = torch.full(shape, V[layer], dtype=torch.bfloat16)
    rounded = [float(torch.tensor(one, dtype=torch.bfloat16)) for one in V]
    wanted = {layer: LayerScales((float(np.float32(K[layer])),), (rounded[layer],)) for layer in range(2)}
    assert read_scales(put(tmp_path / "a", tensors)) == wanted


@pytest.mark.parametrize("name", ["kv_scale", "k_scale"])
def test_one_scale_is_that_of_k_and_v(tmp_path, name):
    found = read_scales(put(tmp_path / "a", {f"transformer.h.3.attn.{name}": 0.5}))
    assert found == {3: LayerScales((0.5,), (0.5,))}


def test_a_scale_for_each_head_is_read_in_any_shape(tmp_path):
    tensors = {"model.layers.0.self_attn.k_scale": torch.tensor([0.5, 2.0]).reshape(2, 1, 1)}
    tensors["model.layers.0.self_attn.v_scale"] = torch.tensor(3.0)
    assert read_scales(put(tmp_path / "a", tensors)) == {0: LayerScales((0.5, 2.0), (3.0,))}


def test_files_without_scales_have_none(tmp_path):
    assert read_scales(put(tmp_path / "a", {"model.layers.0.self_attn.k_proj.weight": torch.ones(2, 2)})) == {}
    tensors = {"model.layers.0.self_attn.k_zero_point": 0, "model.layers.0.self_attn.k_scale": 1.0}
    assert read_scales(put(tmp_path / "a", tensors)) == {0: LayerScales((1.0,), (1.0,))}  # zeros shift nothing
    model = random_model(CONFIGS["llama"])  # loaded from nowhere
    assert scales_of(model, RowFormat.FP8) == {}


@pytest.mark.parametrize("value", [0.0, -0.5, torch.nan, torch.inf, torch.ones(0), torch.tensor([1.0, 0.0])])
def test_numbers_that_are_no_scale_are_refused(tmp_path, value):
    folder = put(tmp_path / "a", {"model.layers.0.self_attn.k_scale": value})
    with pytest.raises(InputError, match=r"layers\.0\.self_attn\.k_scale of .* a scale is a number above 0"):
        read_scales(folder)


def test_scales_that_mean_something_else_are_refused(tmp_path):
    layer = "model.layers.0.self_attn."
    with pytest.raises(InputError, match="a scale of V in layer 0, but none of K"):
        read_scales(put(tmp_path / "a", {layer + "v_scale": 1.0}))
    with pytest.raises(InputError, match="two different scales"):
        read_scales(put(tmp_path / "a", {layer + "k_scale": 1.0, layer + "k_proj.k_scale": 2.0}))
    with pytest.raises(InputError, match=r"shifts K or V .*v_zero_point"):
        read_scales(put(tmp_path / "a", {layer + "k_scale": 1.0, layer + "v_zero_point": 3}))
    folder = put(tmp_path / "b", {layer + "k_scale": 1.0})
    (folder / "config.json").write_text("{}")
    for changed, found in (({"type": "int"}, "type int"), ({"num_bits": 4}, "num_bits 4"), ({"dynamic": True}, "dyn")):
        note_scheme(folder, **changed)
        with pytest.raises(InputError, match=f"not for e4m3 .{found}"):
            read_scales(folder)
    note_scheme(folder)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"kv_cache_quant_algo": "NVFP4"}}))
    with pytest.raises(InputError, match="for NVFP4, not e4m3"):
        read_scales(folder)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"kv_cache_quant_algo": "FP8"}}))
    assert read_scales(folder) == {0: LayerScales((1.0,), (1.0,))}
    (folder / "scales.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InputError, match=r"cannot read the scales of K and V in .*scales\.safetensors"):
        read_scales(folder)


@settings(max_examples=50)
@given(
    x=arrays.arrays(
        np.float32, (1, 2, 3, 8), elements=st.floats(width=32, allow_nan=False, allow_infinity=False), fill=st.nothing()
    ),
    scale=st.lists(st.floats(0, exclude_min=True, width=32, allow_infinity=False), min_size=1, max_size=2),
)
def test_stored_numbers_are_the_nearest_ones_to_the_quotient(x, scale):
    """One rounding to binary32, one to e4m3; what is beyond 448 becomes 448, and every zero is +0."""
    head = HeadScale("K", RowFormat.FP8, tuple(scale))
    got = head.convert(torch.from_numpy(x))
    with np.errstate(over="ignore", under="ignore"):
        quotients = x / np.array(scale, np.float32)[:, None, None]
    wanted = nearest(quotients)
    np.testing.assert_array_equal(got, wanted)
    assert not (np.signbit(got) & (got == 0)).any()
    assert head.saturated == np.count_nonzero(np.abs(quotients) > 448)
    assert head.lost == np.count_nonzero(x) - np.count_nonzero(wanted)
    assert not head.exponents.any()
    np.testing.assert_array_equal(head.factors, np.broadcast_to(np.array(scale, np.float64), (1, 2)))


def test_ties_and_ends_of_shipped_scales():
    ties = (POSITIVE[1:] + POSITIVE[:-1]) / 2
    values = np.concatenate([POSITIVE, ties, np.nextafter(ties, 0, dtype=np.float32), [464.0, 1e30, 2.0**-10]])
    values = np.concatenate([values, -values]).astype(np.float32) * np.float32(0.25)
    x = torch.from_numpy(np.resize(values, (1, 1, -(-values.size // 32), 32)).copy())
    got = HeadScale("K", RowFormat.FP8, (0.25,)).convert(x)
    np.testing.assert_array_equal(got, nearest(x.numpy() * 4))
    wanted = (x * 4).clamp(-448, 448).to(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(got, wanted)
    for bad in (torch.nan, torch.inf):
        x[0, 0, 3, 3] = bad
        with pytest.raises(RangeError, match="V of layer 7 holds Inf or NaN"):
            HeadScale("V of layer 7", RowFormat.FP8, (0.25,)).convert(x)


class E4m3Layer(DynamicLayer):
    """transformers' own layer over K and V that torch has rounded to e4m3.

    `exact_prompt`: the first call attends to its own K and V before they are rounded.
    """

    def __init__(self, k_scale, v_scale, exact_prompt):
        super().__init__()
        self.scales, self.exact_prompt = (k_scale, v_scale), exact_prompt

    def update(self, key_states, value_states, *args, **kwargs):
        first = not self.is_initialized
        rounded = [
            (x / torch.full_like(x, scale)).clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) * scale
            for x, scale in zip((key_states, value_states), self.scales, strict=True)
        ]
        found = super().update(*rounded, *args, **kwargs)
        return (key_states, value_states) if first and self.exact_prompt else found


def torch_cache(exact_prompt=True, k=K, v=V):
    cache = DynamicCache()
    cache.layers = [E4m3Layer(k[layer], v[layer], exact_prompt) for layer in range(2)]
    cache.layer_class_to_replicate = None
    return cache


def logits_of(model, cache, ids):
    """Logits of a prompt's last token and of single steps, then of a later turn."""
    with torch.no_grad():
        found = [model(ids[:, :30], past_key_values=cache).logits[:, -1:]]
        found += [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(30, 50)]
        return torch.cat([*found, model(ids[:, 50:], past_key_values=cache).logits], dim=1)


def test_the_drives_attend_to_what_the_checkpoint_means(shipped, target, caplog):
    """Against binary64: the rounding of q and of answers is left, and what it tips over in the next layer's e4m3."""
    model, ids = loaded(shipped), prompts(2, 60)
    with caplog.at_level(logging.INFO), attach(model, target, kv_format="fp8", spill=7) as drive:
        assert "ships scales of K and V for 2 layers" in caplog.text
        cache = drive.cache()
        got = logits_of(model, cache, ids)
        stats = cache.batch.statistics.writeback()
    plain = logits_of(model, DynamicCache(), ids)
    exact = AutoModelForCausalLM.from_config(model.config, dtype=torch.float64).eval()
    exact.load_state_dict(model.state_dict())
    wanted = logits_of(exact, torch_cache(), ids)
    error, cost = (wanted - got).abs().mean(), (wanted - plain).abs().mean()
    assert error < 0.05 * cost
    assert stats["values_saturated"] > 0
    assert stats["heads_scaled"] == 0
    # without its scales, the same checkpoint is stored otherwise
    model.name_or_path = ""
    with attach(model, target, kv_format="fp8", spill=7) as drive:
        other = logits_of(model, drive.cache(), ids)
    assert (wanted - other).abs().mean() > 0.1 * cost


def test_sequences_in_memory_hold_what_the_checkpoint_means(shipped, target):
    model, ids = loaded(shipped), prompts(2, 60)
    wanted = logits_of(model, torch_cache(exact_prompt=False), ids)
    with attach(model, target, kv_format="fp8", active="memory") as drive:
        assert torch.equal(logits_of(model, drive.cache(), ids), wanted)


def test_later_parts_of_a_prompt_read_what_the_checkpoint_means(shipped, target):
    """The second part of a prompt attends to its own K and V as computed, and to those of the first part as stored."""
    model, ids = loaded(shipped), prompts(1, 60)

    class InParts(E4m3Layer):
        def update(self, key_states, value_states, *args, **kwargs):
            first = 0 if not self.is_initialized else self.keys.shape[2]
            keys, values = super().update(key_states, value_states, *args, **kwargs)
            own = [torch.cat([x[:, :, :first], new], 2) for x, new in ((keys, key_states), (values, value_states))]
            return own[0], own[1]

    reference = torch_cache()
    reference.layers = [InParts(K[layer], V[layer], exact_prompt=False) for layer in range(2)]
    with torch.no_grad():
        wanted = [model(part, past_key_values=reference).logits for part in ids.split(20, dim=1)]
        with attach(model, target, kv_format="fp8", spill=1) as drive:
            cache = drive.cache()
            for number, part in enumerate(ids.split(20, dim=1)):
                cache.batch.part.in_prompt = number > 0
                assert torch.allclose(model(part, past_key_values=cache).logits, wanted[number], atol=1e-4)


def test_the_stored_numbers_are_those_of_the_checkpoint(shipped, target):
    """The bytes on the drive are codes of x / scale, whatever the first call was."""
    model, ids = loaded(shipped), prompts(1, 40)
    states = DynamicCache()
    with torch.no_grad(), attach(model, target, kv_format="fp8", spill=1) as drive:
        cache = drive.cache()
        model(ids[:, :3], past_key_values=cache)
        model(ids[:, 3:], past_key_values=cache)
        cache.batch.synchronize()
        session = cache.batch.sequences[0].slices[0].session
        stored = [session.read(0, kind, 0, (2, 40, 32)) for kind in abi.KvKind]
    with torch.no_grad():
        model(ids[:, :3], past_key_values=states)
        model(ids[:, 3:], past_key_values=states)
    for got, x, scale in zip(stored, (states.layers[0].keys, states.layers[0].values), (K[0], V[0]), strict=True):
        np.testing.assert_array_equal(got, nearest(x[0].numpy() / np.float32(scale)))


def turns(model, targets, **options):
    """Logits of a prompt in two calls, steps, beams, and steps behind a crop."""
    ids, nexts = prompts(2, 90), prompts(2, 8, seed=3)
    with attach(model, targets, kv_format="fp8", **options) as drive, torch.no_grad():
        cache = drive.cache()
        found = [model(ids[:, :50], past_key_values=cache).logits, model(ids[:, 50:], past_key_values=cache).logits]
        found += [model(nexts[:, i : i + 1], past_key_values=cache).logits for i in range(4)]
        cache.reorder_cache(torch.tensor([1, 1]))
        found += [model(nexts[:, i : i + 1], past_key_values=cache).logits for i in range(4, 8)]
        cache.crop(-4)
        found.append(model(nexts[:, :1], past_key_values=cache).logits)
        return torch.cat(found, dim=1)


@pytest.mark.parametrize("attention", some_quick(["exact", "local", "groups", "sparf"], ["exact", "sparf"]))
def test_spills_drives_engines_forks_and_crops_change_no_bit(shipped, tmp_path, attention):
    model = loaded(shipped)
    options = {"attention": attention, "ratio": None if attention == "exact" else Fraction(1, 2)}
    wanted = turns(model, drive_at(tmp_path / "0"), spill=16, **options)
    for spill in (1, 64) if attention in ("exact", "local") else ():  # the others read pending tokens exactly
        assert torch.equal(turns(model, drive_at(tmp_path / f"s{spill}"), spill=spill, **options), wanted)
    pair = [drive_at(tmp_path / "1"), Emulator(tmp_path / "2", "hls", capacity_bytes=1 << 26)]
    assert torch.equal(turns(model, pair, spill=16, **options), wanted)


def test_a_scale_for_each_head(shipped, target):
    """Heads with scales of their own give what the model with one scale gives for that head."""
    weights = load_file(shipped / "model.safetensors")
    apart = torch.tensor([0.0057, 0.0083])
    weights["model.layers.0.self_attn.k_scale"] = apart
    save_file(weights, shipped / "model.safetensors", metadata={"format": "pt"})
    model, ids = loaded(shipped), prompts(1, 60)
    k = (apart[:, None, None], K[1])

    class OwnScales(E4m3Layer):
        def update(self, key_states, value_states, *args, **kwargs):
            self.scales = (self.scales[0].expand_as(key_states), self.scales[1])
            keys, values = key_states / self.scales[0], value_states / torch.full_like(value_states, self.scales[1])
            keys, values = (x.clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) for x in (keys, values))
            first = not self.is_initialized
            found = DynamicLayer.update(self, keys * self.scales[0], values * self.scales[1], *args, **kwargs)
            self.scales = (apart[:, None, None], self.scales[1])
            return (key_states, value_states) if first else found

    cache = torch_cache(k=k)
    cache.layers[0] = OwnScales(k[0], V[0], exact_prompt=True)
    wanted, plain = logits_of(model, cache, ids), logits_of(model, DynamicCache(), ids)
    with attach(model, target, kv_format="fp8") as drive:
        error = (logits_of(model, drive.cache(), ids) - wanted).abs().mean()
    assert error < 0.05 * (wanted - plain).abs().mean()
    weights["model.layers.0.self_attn.k_scale"] = torch.ones(3)
    save_file(weights, shipped / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"has 3 scales of K or V in layer 0; .* each of its 2 KV heads"):
        attach(model, target, kv_format="fp8")
    attach(model, target, kv_format="int8").detach()  # other formats do not look


def test_sessions_of_other_scales_are_refused(shipped, tmp_path):
    model, ids, more = loaded(shipped), prompts(1, 50), prompts(1, 5, seed=2)
    with drive_at(tmp_path / "0") as target, torch.no_grad():
        with attach(model, target, kv_format="fp8") as drive:
            cache = drive.cache()
            model(ids, past_key_values=cache)
            drive.save(cache, tmp_path / "saved")
        with attach(model, target, kv_format="fp8") as drive:
            again = model(more, past_key_values=drive.reopen(tmp_path / "saved")).logits
        with attach(model, target, kv_format="fp8") as drive:
            fresh = drive.cache()
            model(ids, past_key_values=fresh)
            assert torch.equal(again, model(more, past_key_values=fresh).logits)
        ship(shipped, k=(K[0], 0.5))
        with attach(model, target, kv_format="fp8") as drive, pytest.raises(InputError, match="other scales of K"):
            drive.reopen(tmp_path / "saved")


def test_stored_sessions_of_other_scales_are_not_found(shipped, tmp_path):
    model, ids = loaded(shipped), prompts(1, 80)

    def cached():
        with drive_at(tmp_path / "0") as target, attach(model, target, kv_format="fp8", sessions=True) as drive:
            cache = drive.sessions.cache(ids)
            before = cache.get_seq_length()
            greedy(model, ids, 2, past_key_values=cache)
            return before

    assert [cached(), cached()] == [0, 79]
    ship(shipped, v=(V[0], 0.5))
    assert cached() == 0
    ship(shipped)
    assert cached() == 79


def test_a_session_that_is_loaded_continues_as_one_that_never_stopped(shipped, tmp_path):
    model, ids = loaded(shipped), prompts(1, 80)
    options = {"kv_format": "fp8", "sessions": True, "active": "memory"}
    with drive_at(tmp_path / "0") as target:
        with attach(model, target, **options) as drive:
            begun = greedy(model, ids, 20, past_key_values=drive.sessions.cache(ids))
        with attach(model, target, **options) as drive:
            drive.sessions.costs.rates = LOADING_PAYS
            cache = drive.sessions.cache(begun)
            assert cache.get_seq_length() == len(cache.batch.placement.loading.tokens) == begun.shape[1] - 1
            got = greedy(model, begun, 20, past_key_values=cache)
    with drive_at(tmp_path / "1") as target, attach(model, target, **options) as drive:
        assert torch.equal(greedy(model, ids, 40, past_key_values=drive.sessions.cache(ids)), got)


def test_the_fingerprint_names_the_scales(shipped):
    model = loaded(shipped)
    with_scales = {kind: of_model(model, kind) for kind in RowFormat}
    of_answers = digest([], model)
    ship(shipped, k=(K[0], 0.5))
    changed = {kind for kind in RowFormat if of_model(model, kind) != with_scales[kind]}
    assert changed == {RowFormat.FP8}
    assert digest([], model) != of_answers
    ship(shipped, k=(0.0, 0.5))
    digest([], model)  # an evaluation of other formats is no matter of scales that cannot be used
    with pytest.raises(InputError, match="a scale is a number above 0"):
        of_model(model, RowFormat.FP8)


def test_trimmed_sequences_continue_with_the_same_bits(shipped, tmp_path):
    """The first group moves to other positions, with K of its own, which is stored nowhere."""
    model, ids = loaded(shipped), prompts(1, 400)

    def text(target, spill):
        options = {"overflow": "trim", "context": 420, "spill": spill}
        with attach(model, target, kv_format="fp8", **options) as drive:
            cache = drive.cache()
            found = greedy(model, ids, 60, past_key_values=cache)
            assert cache.batch.removed
            return found

    wanted = text(drive_at(tmp_path / "0"), 1)
    assert torch.equal(text([drive_at(tmp_path / "1"), drive_at(tmp_path / "2")], 16), wanted)


def test_the_text_is_that_of_torch(shipped, target):
    model, ids = loaded(shipped), prompts(1, 40)
    wanted = greedy(model, ids, 30, past_key_values=torch_cache())
    with attach(model, target, kv_format="fp8") as drive:
        assert torch.equal(greedy(model, ids, 30, past_key_values=drive.cache()), wanted)


def test_checkpoints_with_quantised_weights_still_need_their_package(shipped):
    config = json.loads((shipped / "config.json").read_text())
    config["quantization_config"]["config_groups"] = {"group_0": {"targets": ["Linear"], "weights": SCHEME}}
    (shipped / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="compressed-tensors"):
        checkpoints.load(str(shipped))
