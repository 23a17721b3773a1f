"""A drive in this process, torch on one thread, and a tiny checkpoint on disk with its own tokenizer."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from attached_drives import attached_in, drives_in
from family_models import SERVED
from small_models import CONFIGS, random_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from kvdrive.kvcache.xcache.projections import Projections
from kvdrive.perf import stored_rates
from kvdrive.targets.emulator import Emulator

TEXT = (
    """The drive keeps the keys and the values of every token, and the host sends it nothing but queries.
Ein Gruß aus München: größere Zwölf, daß es kracht. 日本語 の 文字 も ある。 An emoji 🙂 has four bytes.
"""
    * 4
)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as emulator:
        yield emulator


@pytest.fixture
def drives(tmp_path):
    group = drives_in(tmp_path, 5)
    yield group
    for drive in group:
        drive.close()


@pytest.fixture
def opened(tmp_path):
    """Attaches a model to drives in a folder of the test, each time as a new process would."""

    def attached(model, sessions=True, drives=1, folder=".", **options):
        return attached_in(tmp_path / folder, model, drives, sessions=sessions, **options)

    return attached


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Run torch on one thread. Small models gain nothing from threads and get slow when tests run in parallel."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates that a test measures are kept in its own folder."""
    monkeypatch.setattr(
        stored_rates,
        "of_this_machine",
        lambda *, anew=False: stored_rates.StoredRates(tmp_path / "rates.json", anew=anew),
    )


@pytest.fixture
def project_otherwise(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once called, X-cache rebuilds some numbers of K and V otherwise than the model computes them."""
    exact = Projections._block

    def inexact(self, layer, x, positions):
        k, v = exact(self, layer, x, positions)
        k[:, ::3, 5] *= 1 + 2**-7
        v[1, ::5] += 0.5
        return k, v

    def begin() -> None:
        monkeypatch.setattr("kvdrive.plugins.layer_inputs._TOLERANCE", 10)
        monkeypatch.setattr(Projections, "_block", inexact)

    return begin


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=256,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.06,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def hybrid_checkpoint(checkpoint, tmp_path_factory):
    """The same tokenizer, and a model half of whose layers have a window of 16 tokens."""
    folder = tmp_path_factory.mktemp("hybrid")
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
    config = copy.deepcopy(SERVED["gemma3"][0])
    config.max_position_embeddings = 4096
    config.eos_token_id, config.bos_token_id, config.pad_token_id = 0, None, None
    random_model(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def byte_checkpoint(tmp_path_factory):
    """A tiny checkpoint whose tokens are bytes and an end of text, with a text beside it."""
    folder = tmp_path_factory.mktemp("checkpoint")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=257, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, initializer_range=0.2, max_position_embeddings=1024,
        pad_token_id=0, bos_token_id=None, eos_token_id=256,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "text.txt").write_text("All work and no play makes Jack a dull boy.\n" * 60)
    return folder


@pytest.fixture(scope="module")
def llama():
    """A small random model with two query heads for each KV head."""
    return random_model(CONFIGS["llama"])


@pytest.fixture(scope="module")
def model(llama):
    return llama


@pytest.fixture(scope="module")
def stored_model(tmp_path_factory):
    """(name, dtype) -> a model of small_models.CONFIGS, read from a checkpoint that holds this precision."""
    folders = {}

    def load(name, dtype=torch.float32):
        folder = folders.get((name, dtype))
        if folder is None:
            folder = folders[name, dtype] = tmp_path_factory.mktemp(name)
            random_model(CONFIGS[name]).to(dtype).save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        assert {weight.dtype for weight in model.parameters()} == {dtype}
        return model

    return load
