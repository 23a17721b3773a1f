"""What the check that a model has not changed costs each call, as a share of a decode step."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import kvdrive
from bench.rounds import seconds
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.tree import ROOT


def run(setup: Setup) -> list[Block]:
    """The shipped model, and the same with many layers: fastest of several runs."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers, steps = setup.size((100, 40), (6, 3))
    mini = AutoModelForCausalLM.from_pretrained(ROOT / "models/mini").eval()
    deep = AutoModelForCausalLM.from_config(LlamaConfig(**mini.config.to_dict() | {"num_hidden_layers": layers})).eval()
    found = []
    for model, name in ((mini, "models/mini"), (deep, f"the same model with {layers} layers")):
        ids = torch.randint(2, 300, (1, 200))
        with torch.no_grad(), kvdrive.attach(model, "cpu") as attached:
            cache = attached.cache()
            model(ids, past_key_values=cache)
            step = min(seconds(lambda: model(ids[:, :1], past_key_values=cache)) for _ in range(steps))  # noqa: B023
            check = min(seconds(attached._storage.watched.identity.is_current) for _ in range(steps))
        tensors = len(list(model.parameters()))
        found.append(f"{check * 1e6:.0f} us, {check / step:.2%} of a decode step, for {name} ({tensors} parameters)")
    return [Block("identity", [Table(note=f"The check of a call takes {' and '.join(found)}.")])]
