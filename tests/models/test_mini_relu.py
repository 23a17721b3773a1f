"""The shipped ReLU model: stock, small and sparse. Its card has the measured numbers."""

import json
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvdrive.eval.library import held_out_modules
from measure_mini import count_zeros, perplexity_block, retrieval_block, sparsity_block, training_block

FOLDER = Path(__file__).resolve().parents[2] / "models" / "mini_relu"
MEASURED = json.loads((FOLDER / "measured.json").read_text())
TRAINING = json.loads((FOLDER / "training.json").read_text())


def test_the_card_shows_what_was_measured():
    card = (FOLDER / "README.md").read_text()
    for block in (sparsity_block, perplexity_block, retrieval_block):
        assert block(MEASURED) in card
    assert training_block(TRAINING) in card
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 20e6


def test_most_activations_are_zero():
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    assert (type(model).__name__, model.config.hidden_act) == ("LlamaForCausalLM", "relu")
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    ids = tokenizer(held_out_modules()[0].text, return_tensors="pt", verbose=False)["input_ids"][:, :512]
    with torch.no_grad(), count_zeros(model) as zeros:
        model(ids)
    assert np.mean(zeros.shares()) > 0.5
    assert zeros.all == [ids.shape[1] * model.config.intermediate_size] * model.config.num_hidden_layers
