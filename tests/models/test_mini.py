"""The shipped model: its files, its use of distant context, and numbers of its card that can be reproduced."""

import json
import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from kvdrive.eval import perplexity, retrieval, tasks
from kvdrive.eval.library import held_out_modules
from measure_mini import CONTEXTS, DEPTHS, TARGETS, WINDOWS, perplexity_block, retrieval_block, training_block

FOLDER = Path(__file__).resolve().parents[2] / "models" / "mini"
MEASURED = json.loads((FOLDER / "measured.json").read_text())
TRAINING = json.loads((FOLDER / "training.json").read_text())


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def encode():
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    return lambda text: tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


@pytest.fixture(scope="module")
def windows(encode):
    documents = [np.array(encode(module.text), np.int64) for module in held_out_modules()[:20]]
    return perplexity.windows(documents, max(CONTEXTS), TARGETS, WINDOWS)


def test_it_is_a_small_stock_model_with_long_positions(model):
    config = model.config
    assert type(model).__name__ == "LlamaForCausalLM"
    assert config.max_position_embeddings >= 16384
    assert (config.num_attention_heads // config.num_key_value_heads, config.head_dim) == (2, 64)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 20e6
    with safe_open(FOLDER / "model.safetensors", "np") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118


def test_the_card_shows_what_was_measured():
    card = (FOLDER / "README.md").read_text()
    for block in (training_block(TRAINING), perplexity_block(MEASURED), retrieval_block(MEASURED)):
        assert block in card


def test_long_context_was_measured_to_help():
    nats = {row["context"]: row["nats"] for row in MEASURED["perplexity"]}
    assert nats[8192] < nats[512] - 0.05


@pytest.mark.slow
@pytest.mark.skipif(
    platform.python_version() != TRAINING["python"], reason="the text is that of the Python which trained the model"
)
def test_the_first_perplexity_of_the_card_comes_out_again(model, windows):
    (row,) = perplexity.by_context(model, windows, CONTEXTS[:1], TARGETS, DynamicCache)
    assert row.nats == pytest.approx(MEASURED["perplexity"][0]["nats"], abs=1e-3)


def test_it_gains_from_what_is_far_back(model, windows):
    """Measured with a quarter of the windows and a quarter of the length, to be fast."""
    short, long = perplexity.by_context(model, windows[::4], (512, 2048), TARGETS, DynamicCache)
    assert long.nats < short.nats - 0.03


def test_it_finds_a_pass_key(model, encode):
    text = np.array(encode(held_out_modules()[0].text), np.int64)
    cases = tasks.cases(["passkey"], encode, text, 512, DEPTHS, 1, 3)
    (row,) = retrieval.accuracy(model, cases, DynamicCache)
    assert row.exact >= 0.8
