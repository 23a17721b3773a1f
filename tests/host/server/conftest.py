"""A model that can be told of tools."""

import pytest
import torch
from agent_requests import TEMPLATE
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture(scope="session")
def tools_checkpoint(checkpoint, tmp_path_factory):
    """The tiny model with a template that has a place for tools, and a token that begins a call."""
    folder = tmp_path_factory.mktemp("tools")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.chat_template = TEMPLATE
    tokenizer.add_tokens(["<tool_call>"])
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model.resize_token_embeddings(len(tokenizer) + 3, mean_resizing=False)  # numbers that no token has
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def each_row_alone(monkeypatch):
    """Dense layers whose result for a row does not depend on the other rows."""

    def forward(self, x):
        rows = [torch.nn.functional.linear(row[None], self.weight, self.bias) for row in x]
        return torch.cat(rows)

    monkeypatch.setattr(torch.nn.Linear, "forward", forward)
