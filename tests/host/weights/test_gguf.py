"""GGUF files with experts: what conversion reads from them, one parameter in memory at a time."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from pairs import some_quick
from rich.console import Console
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from kvdrive.errors import UnsupportedError
from kvdrive.generation import checkpoints, gguf
from kvdrive.weights import gguf_source
from kvdrive.weights.making import make_file
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.sources import empty_model

package = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'kvdrive[gguf]'")

QUIET = Console(quiet=True)
EXPERTS, USED, HIDDEN, LAYERS, VOCABULARY = 6, 2, 64, 2, 258
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "num_experts_per_tok": USED,
    "initializer_range": 0.1,
    "tie_word_embeddings": False,
}
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.gate": "ffn_gate_inp",
    "model.layers": "blk",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def qwen3moe(tied=False):
    config = Qwen3MoeConfig(
        **COMMON | {"tie_word_embeddings": tied},
        intermediate_size=96,
        moe_intermediate_size=768,
        head_dim=16,
        num_experts=EXPERTS,
        norm_topk_prob=True,
    )
    return Qwen3MoeForCausalLM(config)


def qwen2moe():
    sizes = {"intermediate_size": 96, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(**COMMON, **sizes, num_experts=EXPERTS))


def mixtral():
    return MixtralForCausalLM(MixtralConfig(**COMMON, intermediate_size=128, num_local_experts=EXPERTS))


FAMILIES = {"qwen3moe": qwen3moe, "tied": lambda: qwen3moe(tied=True), "qwen2moe": qwen2moe, "llama": mixtral}


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    """A random model of a family in a GGUF file, its matrices quantised as `kind`, with a tokenizer of bytes."""

    def make(family, kind="Q8_0"):
        torch.manual_seed(3)
        model = FAMILIES[family]().eval()
        path = tmp_path_factory.mktemp(family) / f"{family}.gguf"
        writer = package.GGUFWriter(path, "qwen3moe" if family == "tied" else family)
        writer.add_context_length(256)
        writer.add_embedding_length(HIDDEN)
        writer.add_block_count(LAYERS)
        writer.add_feed_forward_length(model.config.intermediate_size)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_key_length(16)
        writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
        writer.add_rope_freq_base(model.config.rope_parameters["rope_theta"])
        writer.add_vocab_size(VOCABULARY)
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(USED)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list([*sorted(ByteLevel.alphabet()), "ab", "<|endoftext|>"])
        writer.add_token_types([1] * (VOCABULARY - 1) + [3])
        writer.add_token_merges(["a b"])
        writer.add_eos_token_id(VOCABULARY - 1)
        numbers = dict(model.named_parameters())  # tied ones once
        for name, tensor in numbers.items():
            for one, matrix in stored(name, tensor.detach().numpy()):
                if matrix.ndim == 1 or "gate_inp" in one:
                    writer.add_tensor(one, matrix.reshape(-1) if "shexp" in one else matrix)
                else:
                    quantised = package.GGMLQuantizationType[kind]
                    writer.add_tensor(one, package.quants.quantize(matrix, quantised), raw_dtype=quantised)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


def stored(name, tensor):
    """A parameter of transformers as llama.cpp stores it: gate and up of experts are two tensors."""
    place = name.replace("model.layers", "blk").partition(".mlp")[0]
    if name.endswith("experts.gate_up_proj"):
        gate, up = np.split(tensor, 2, axis=1)
        yield f"{place}.ffn_gate_exps.weight", np.ascontiguousarray(gate)
        yield f"{place}.ffn_up_exps.weight", np.ascontiguousarray(up)
        return
    if name.endswith("experts.down_proj"):
        yield f"{place}.ffn_down_exps.weight", tensor
        return
    for theirs, ours in PARTS.items():
        name = name.replace(theirs, ours)
    yield name, tensor


@pytest.mark.parametrize(
    ("family", "kind"),
    some_quick(
        [("qwen3moe", "Q8_0"), ("qwen3moe", "F16"), ("qwen2moe", "Q8_0"), ("tied", "Q8_0")],
        [("qwen3moe", "F16"), ("tied", "Q8_0")],
    ),
)
def test_the_tokens_of_a_file_with_experts_are_those_of_transformers(file_of, tmp_path, family, kind):
    path = file_of(family, kind)
    made = make_file(path, tmp_path / "w.kvw", "auto", QUIET)
    assert made.experts == LAYERS * EXPERTS
    expected, _ = gguf.load(path, torch.float32)
    checkpoint = load(str(path), "auto", FlashOptions(made.path, weights_memory=10**8))
    ids = torch.tensor([checkpoint.tokenizer("def main(ab):").input_ids])
    with torch.no_grad():
        for seed in range(3):
            more = torch.randint(0, VOCABULARY, (1, 5), generator=torch.Generator().manual_seed(seed))
            both = torch.cat([ids, more], 1)
            assert torch.equal(checkpoint.model(both).logits, expected.eval()(both).logits)
        options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
        assert torch.equal(checkpoint.model.generate(ids, **options), expected.generate(ids, **options))
    checkpoint.close()


def test_one_parameter_is_dequantised_at_a_time(file_of, tmp_path, monkeypatch):
    path, alive, most = file_of("qwen3moe"), [], []
    read = gguf_source.GgufSource.read

    def counted(self, name):
        if sum(one() is not None for one in alive) > 2:
            gc.collect()
        most.append(sum(one() is not None for one in alive))
        tensor = read(self, name)
        alive.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(gguf_source.GgufSource, "read", counted)
    monkeypatch.setattr(gguf, "load", lambda *_: pytest.fail("the whole model was loaded"))
    make_file(path, tmp_path / "w.kvw", "auto", QUIET)
    assert len(alive) > LAYERS * 2
    assert max(most) <= 2  # both parts of a layer's experts


def test_every_parameter_is_that_of_transformers_loader(file_of):
    path = file_of("qwen3moe")
    source = gguf_source.source_of(path, empty_model(checkpoints.read_config(path)))
    for name, tensor in gguf.load(path, torch.float32)[0].named_parameters():
        assert source.has(name)
        assert torch.equal(source.read(name), tensor)


def test_experts_that_transformers_does_not_read_are_refused(file_of, tmp_path):
    path = file_of("llama")  # Mixtral: transformers takes it for a Llama, whose feed-forward parts would be random
    with pytest.raises(UnsupportedError, match=r"transformers reads no model\.layers\.0\.mlp"):
        make_file(path, tmp_path / "w.kvw", "auto", QUIET)
    with pytest.raises(UnsupportedError, match="such parameters"):
        checkpoints.load(str(path))
    assert not (tmp_path / "w.kvw").exists()
