"""One thing of everything that a model computes with is changed: its sessions are found if nothing changes, only then.

Each kind of change has a case of its own. Random ones follow in the slow test: KVDRIVE_IDENTITY_CASES and
KVDRIVE_IDENTITY_SEED choose how many, and which.
"""

import copy
import os
from random import Random

import pytest
import torch
from family_models import NARROW
from mutations import CHANGES, TINY, a_switch, another_config, built, with_adapters
from small_models import prompts
from transformers import (
    CohereConfig,
    GemmaConfig,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
    StableLmConfig,
)

from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator

CASES = int(os.environ.get("KVDRIVE_IDENTITY_CASES", "300"))
SEED = int(os.environ.get("KVDRIVE_IDENTITY_SEED", "1"))
_HEADS = {"num_key_value_heads": 2}
FAMILIES = {
    "llama": LlamaConfig(**TINY, **_HEADS),
    "qwen2": Qwen2Config(**TINY, **_HEADS),
    "qwen3": Qwen3Config(**TINY, **_HEADS, **NARROW),
    "qwen3-moe": Qwen3MoeConfig(
        **TINY, **_HEADS, **NARROW, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "mistral": MistralConfig(**TINY, **_HEADS, sliding_window=None),
    "mixtral": MixtralConfig(**TINY, **_HEADS, num_local_experts=4),
    "phi": PhiConfig(**TINY, **_HEADS),
    "phi3": Phi3Config(**TINY, **_HEADS),
    "opt": OPTConfig(**TINY, ffn_dim=64, word_embed_proj_dim=64, init_std=0.2),
    "gemma": GemmaConfig(**TINY, **_HEADS, **NARROW),
    "gpt-neox": GPTNeoXConfig(**TINY),
    "granite": GraniteConfig(**TINY, **_HEADS, attention_multiplier=0.1),
    "cohere": CohereConfig(**TINY, **_HEADS),
    "olmo2": Olmo2Config(**TINY, **_HEADS),
    "smollm3": SmolLM3Config(**TINY, **_HEADS, no_rope_layers=[1, 0]),
    "stablelm": StableLmConfig(**TINY, **_HEADS),
}
FEW = ("llama", "qwen3-moe", "phi3", "granite")  # of the quick cases
TOKENS = prompts(1, 70)


class Kept:
    """A model of each family, and a drive on which each has stored the same tokens."""

    def __init__(self, drive):
        self.drive = drive
        self.models = {}

    def model(self, family, adapted):
        """The model, the seed that it was built with, and its logits."""
        if (family, adapted) not in self.models:
            seed = len(self.models) + 1
            model = built(FAMILIES[family], seed)
            model = with_adapters(model) if adapted else model
            with torch.no_grad(), attach(model, self.drive, sessions=True) as attached:
                model(TOKENS[:, :-1], past_key_values=attached.sessions.cache(TOKENS))
            self.models[family, adapted] = model, seed, last(model)
        return self.models[family, adapted]

    def found(self, attached):
        cache = attached.sessions.cache(TOKENS)
        length = cache.get_seq_length()
        attached.sessions.discard(cache)
        return length


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    with Emulator(folder / "drive.kv", "fast", capacity_bytes=1 << 26) as drive:
        yield Kept(drive)


@torch.no_grad()
def last(model):
    return model(TOKENS, use_cache=False).logits[0, -1]


def same(model, before):
    """True if the model computes the same; a change that makes it fail is one."""
    try:
        return torch.equal(last(model), before)
    except Exception:
        return False


def configured(kept, family, random):
    """Another configuration with the same weights. Returns what was changed, and if that changed the logits."""
    model, seed, before = kept.model(family, False)
    found = another_config(FAMILIES[family], random)
    if found is None:
        return "nothing", False
    name, config = found
    try:
        other = built(config, seed)
        other.load_state_dict(model.state_dict())
        after = last(other)
    except Exception:  # many fields go together with others, or with shapes
        return "nothing", False
    what, changed = f"{family}: {name}", not torch.equal(after, before)
    try:
        attached = attach(other, kept.drive, sessions=True)
    except Exception:  # a drive does not serve this one
        return what, False
    with attached:
        assert kept.found(attached) == 0 or not changed, what
    return what, changed


def changed_as(kept, family, change, random, while_attached):
    """One change of a model. Returns what was changed, and if that changed the logits."""
    model, _, before = kept.model(family, change is a_switch)
    other, what, undo = copy.deepcopy(model), f"{family}: {change.__name__}", None
    try:
        if while_attached:
            with attach(other, kept.drive, sessions=True) as attached:
                assert kept.found(attached) == TOKENS.shape[1] - 1, f"{what}: unchanged"
                undo = change(other, random)
                changed = not same(other, before)
                assert kept.found(attached) == 0 or not changed, f"{what}, attached"
        else:
            undo = change(other, random)
            changed = not same(other, before)
            try:
                attached = attach(other, kept.drive, sessions=True)
            except Exception:
                return what, False
            with attached:
                assert kept.found(attached) == 0 or not changed, f"{what}, attached later"
    finally:
        if undo is not None:
            undo()
    return what, changed


def case(kept, seed):
    """One random change. Returns what was changed, and if that changed the logits."""
    random = Random(seed)
    family = random.choice(list(FAMILIES))
    change = random.choice([*CHANGES, *[None] * 8])
    if change is None:
        return configured(kept, family, random)
    return changed_as(kept, family, change, random, random.random() < 0.5)


@pytest.mark.parametrize("while_attached", [True, False], ids=["attached", "before"])
@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
def test_a_change_of_each_kind_is_another_model(kept, change, while_attached):
    """Each in the first of some random cases that changes what is computed."""
    for seed in range(20):
        random = Random(seed)
        if changed_as(kept, random.choice(FEW), change, random, while_attached)[1]:
            return
    pytest.fail("it changes no model")


@pytest.mark.parametrize("seed", range(4))
def test_another_value_in_a_configuration_is_another_model(kept, seed):
    random = Random(seed)
    while not configured(kept, random.choice(FEW), random)[1]:
        pass


@pytest.mark.slow
def test_a_changed_model_finds_nothing_and_an_unchanged_one_everything(kept):
    done = [case(kept, SEED * 1_000_000 + number) for number in range(CASES)]
    changed = {what.partition(": ")[2] for what, different in done if different}
    assert sum(different for _, different in done) > CASES // 2
    if CASES >= 1000:
        assert {change.__name__ for change in CHANGES} <= changed
