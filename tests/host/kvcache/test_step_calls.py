"""A layer does little in a decode step: behind the model's matrices, its code and data are in no cache."""

import sys

import torch
from small_models import CONFIGS, prompts, random_model

from kvdrive.kvcache.calls import LayerCall
from kvdrive.plugins.transformers import attach

CALLS = 250  # functions of Python and C that a layer's step may call
COMMANDS = 2  # ATTN_SUBMIT and ATTN_FETCH


def test_a_layer_calls_few_functions_for_a_step(target):
    model = random_model(CONFIGS["llama"])  # 8 query heads, 2 KV heads, d = 32
    with attach(model, target) as attached, torch.no_grad():
        cache = attached.cache()
        model(prompts(1, 50), past_key_values=cache)
        cache.batch.synchronize()
        layer, new, q = cache.layers[0], torch.randn(1, 2, 1, 32), torch.randn(1, 8, 1, 32)

        def step():
            handle, _ = layer.update(new, new)
            layer.attend(LayerCall(handle, q, None, None))

        step()
        before, calls = target.stats().commands, 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            step()
        finally:
            sys.setprofile(None)
        assert target.stats().commands - before == COMMANDS
        assert 100 < calls <= CALLS, calls
        cache.reset()
