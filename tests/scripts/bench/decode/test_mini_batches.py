"""Mini-batches are measured on drives that leave the cores alone."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bench.decode.mini_batches import WAYS, seconds
from bench.decode.plan import SMALL
from kvdrive.targets.emulator import Emulator


@pytest.mark.parametrize("count", WAYS.values())
def test_steps_of_mini_batches_are_measured(tmp_path, count):
    with Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as drive:
        model = LlamaForCausalLM._from_config(LlamaConfig(**SMALL), dtype=torch.bfloat16).eval()
        assert seconds(model, drive, 1, count, 64) > 0
        assert drive.stats().attention_jobs == 2 * 6 * 4  # layers, steps, sequences
