"""Small random models: greedy tokens with the drive as KV cache equal stock sdpa, or the model is refused by name."""

import pytest
import torch
from small_models import CONFIGS, SMALL, prompts, random_model
from transformers import (
    BloomConfig,
    DynamicCache,
    Gemma2Config,
    LlamaConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from kvdrive.errors import UnsupportedError
from kvdrive.generation.generate import generate, greedy
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator


@pytest.mark.parametrize("name", CONFIGS)
def test_decode_logits_stay_close_to_sdpa(target, name):
    """The two differ only by rounding to binary16. A wrong token, head or mask would make a large difference."""
    model, ids = random_model(CONFIGS[name]), prompts(2, 60)
    with torch.no_grad():
        stock = model(ids).logits[:, 40:]
        with attach(model, target) as drive:
            cache = drive.cache()
            model(ids[:, :40], past_key_values=cache, use_cache=True)
            steps = [model(ids[:, i : i + 1], past_key_values=cache, use_cache=True).logits for i in range(40, 60)]
    difference = (torch.cat(steps, dim=1) - stock).abs().max()
    assert 0 < difference < 0.01 * stock.std()


@pytest.mark.parametrize("prompt_tokens", [1, 2, 33])
def test_prompt_lengths(target, llama, prompt_tokens):
    ids = prompts(1, prompt_tokens)
    assert torch.equal(generate(llama, ids, target, max_new_tokens=8), greedy(llama, ids, 8))


def test_a_second_turn_reuses_the_cache(target, llama):
    with attach(llama, target) as drive:
        cache = drive.cache()
        first = greedy(llama, prompts(1, 20), 8, past_key_values=cache)
        second_prompt = torch.cat([first, prompts(1, 9, seed=3)], dim=1)
        second = greedy(llama, second_prompt, 8, past_key_values=cache)
        assert cache.get_seq_length() == second.shape[1] - 1
        bytes_per_token = 2 * 2 * 2 * 32 * 2  # layers, K and V, heads, d, binary16
        assert (
            cache.batch.statistics.transfers().bytes_sent <= cache.get_seq_length() * bytes_per_token
        )  # no token is sent twice
        assert torch.equal(cache.batch.token_ids(), second[:, :-1])
    assert torch.equal(second, greedy(llama, second_prompt, 8))


def test_generate_needs_no_cache_argument(target, llama):
    """`generate` makes its own cache, which is trimmed from the drive when it is unreferenced."""
    ids = prompts(2, 20)
    with attach(llama, target) as drive:
        for _ in range(2):
            tokens = greedy(llama, ids, 8)
            assert target.stats().attention_jobs > 0
        drive.cache().batch.part.open(1, 2)
        assert len(target._drive.sessions()) == 1
    assert torch.equal(tokens, greedy(llama, ids, 8))


def test_sampling_draws_the_same_tokens(target, llama):
    ids = prompts(2, 20)

    def sample():
        torch.manual_seed(5)
        return llama.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=True, top_k=20)

    stock = sample()
    with attach(llama, target):
        assert torch.equal(sample(), stock)


def test_cropped_tokens_are_gone(target, llama):
    ids = prompts(1, 45)
    with attach(llama, target) as drive, torch.no_grad():
        cache = drive.cache()
        llama(ids[:, :40], past_key_values=cache, use_cache=True)
        cache.crop(-7)
        assert cache.get_seq_length() == 33
        logits = llama(ids[:, 33:], past_key_values=cache, use_cache=True).logits
        stock_tokens = greedy(llama, ids, 1, past_key_values=drive.cache())[:, -1]
    assert torch.equal(logits[:, -1].argmax(-1), stock_tokens)
    with torch.no_grad():
        stock = llama(ids).logits[:, 33:]
    torch.testing.assert_close(logits, stock, rtol=0, atol=0.02)


def test_detaching_restores_the_model_after_an_error_too(target, llama):
    stock = llama.config._attn_implementation
    with attach(llama, target):
        assert llama.config._attn_implementation == "kvdrive"
    assert llama.config._attn_implementation == stock
    with pytest.raises(UnsupportedError), attach(llama, target):
        llama.train()(prompts(1, 5), past_key_values=1)
    llama.eval()
    assert "forward" not in vars(llama)
    assert llama.config._attn_implementation == stock


def test_detaching_empties_the_drive(tmp_path, llama):
    with Emulator(tmp_path / "small.kv", "fast", capacity_bytes=20 * 4096) as small:
        for generation in range(1, 4):  # each needs 16 of the 19 pages
            generate(llama, prompts(2, 100), small, max_new_tokens=2)
            assert small.stats().pages_written == 16 * generation


def refused(model, target):
    with pytest.raises(UnsupportedError) as caught, attach(model, target):
        pass
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            LlamaConfig(**SMALL | {"hidden_size": 544, "num_attention_heads": 17}, num_key_value_heads=1),
            "17 query heads",
        ),
        (LlamaConfig(**SMALL, num_key_value_heads=2, head_dim=36), "head dimension 36"),
        (LlamaConfig(**SMALL, num_key_value_heads=2, head_dim=264), "head dimension 264"),
        (Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=32), "caps its attention scores"),
        (BloomConfig(vocab_size=300, hidden_size=256, n_layer=2, n_head=4), "BloomForCausalLM"),
    ],
    ids=["group", "narrow", "wide", "softcap", "bloom"],
)
def test_models_that_the_drive_cannot_serve_are_named(target, config, reason):
    model = random_model(config)
    message = refused(model, target)
    assert reason in message
    assert message.startswith(type(model).__name__)


def test_encoder_decoder_models_are_refused(target):
    config = T5Config(vocab_size=300, d_model=64, d_kv=32, d_ff=64, num_layers=1, num_heads=2)
    assert "encoder-decoder" in refused(T5ForConditionalGeneration(config), target)


def test_a_call_that_stores_nothing_is_stock(target, llama):
    ids = prompts(1, 9)
    with torch.no_grad():
        stock = llama(ids, use_cache=False).logits
        with attach(llama, target):
            assert torch.equal(llama(ids, use_cache=False).logits, stock)
    assert target.stats().commands == 0


def test_a_foreign_cache_with_tokens_is_refused(target, llama):
    cache = DynamicCache(config=llama.config)
    with torch.no_grad():
        llama(prompts(1, 5), past_key_values=cache)
        with attach(llama, target), pytest.raises(UnsupportedError, match=r"what this DynamicCache holds"):
            llama(prompts(1, 1), past_key_values=cache)


def test_a_cache_of_another_attachment_is_refused(target, llama):
    other = random_model(CONFIGS["llama"], seed=7)
    with attach(llama, target) as first, attach(other, target):
        cache = first.cache()
        with pytest.raises(UnsupportedError, match="belongs to another attachment"):
            other(prompts(1, 5), past_key_values=cache)


def test_attaching_twice_is_refused(target, llama):
    with attach(llama, target), pytest.raises(UnsupportedError, match="attached already"):
        attach(llama, target)


def test_another_batch_size_is_refused(target, llama):
    with attach(llama, target) as drive, torch.no_grad():
        cache = drive.cache()
        llama(prompts(2, 5), past_key_values=cache, use_cache=True)
        with pytest.raises(UnsupportedError, match="holds 2 sequences, the call 3"):
            llama(prompts(3, 1), past_key_values=cache, use_cache=True)
