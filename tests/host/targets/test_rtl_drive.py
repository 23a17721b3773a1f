# SPDX-License-Identifier: Apache-2.0
"""A model on a drive whose engine is the kernel's own RTL: the same bits as the compiled and the vectorised kernels."""

from fractions import Fraction

import pytest
import torch
from small_models import SMALL, prompts, random_model
from transformers import LlamaConfig

from kvdrive.errors import TargetError
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import attach
from kvdrive.policies import make_policy
from kvdrive.targets.emulator import Emulator
from openhls.cosim import simulate
from rtl.kernels import find_tops
from rtl.library import library_of

PROMPT, NEW = 60, 4  # 64 tokens
ONE_LAYER = SMALL | {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


def logits(model, engine, path, attention, ratio):
    """Logits of every new token: [NEW, vocabulary]."""
    ids = prompts(1, PROMPT)
    with Emulator(path / f"{engine}-{attention}.kv", engine, capacity_bytes=1 << 24) as drive:
        with attach(model, drive, make_policy(attention, ratio), spill=1):
            out = model.generate(
                ids, max_new_tokens=NEW, do_sample=False, output_logits=True, return_dict_in_generate=True
            )
        jobs = drive.stats().attention_jobs
    assert jobs == (NEW - 1) * 2 * (1 if attention == "exact" else 3)  # steps, heads
    return torch.cat(out.logits)


@pytest.fixture(scope="module")
def kernels():
    """The verilated kernel for one query head per KV head. Its first compilation takes minutes."""
    try:
        simulate.verilator()
    except simulate.ToolError as error:
        pytest.skip(str(error))
    return library_of(*find_tops("attention_g1")).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize(("attention", "ratio"), [("exact", Fraction(1)), ("sparf", Fraction(1, 4))])
def test_rtl_gives_the_bits_of_the_other_engines(kernels, tmp_path, monkeypatch, attention, ratio):
    monkeypatch.setenv("KVDRIVE_RTL", str(kernels))
    model = random_model(LlamaConfig(**ONE_LAYER, num_key_value_heads=2))
    found = {engine: logits(model, engine, tmp_path, attention, ratio) for engine in ("rtl", "hls", "fast")}
    assert found["rtl"].shape == (NEW, SMALL["vocab_size"])
    assert torch.equal(found["rtl"], found["hls"])
    assert torch.equal(found["rtl"], found["fast"])


@pytest.mark.slow
def test_a_group_that_was_not_built_is_named(kernels, tmp_path, monkeypatch):
    folder = tmp_path / "rtl/attention_g1"
    folder.mkdir(parents=True)
    (library,) = (kernels / "attention_g1").glob("library-*.so")
    (folder / library.name).symlink_to(library)
    monkeypatch.setenv("KVDRIVE_RTL", str(folder.parent))
    model = random_model(LlamaConfig(**ONE_LAYER, num_key_value_heads=1))
    with (
        Emulator(tmp_path / "drive.kv", "rtl", capacity_bytes=1 << 24) as drive,
        attach(model, drive),
        pytest.raises(CommandError, match="BAD_GROUP"),
    ):
        model.generate(prompts(1, 8), max_new_tokens=3)


def test_without_a_verilated_kernel_one_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("KVDRIVE_RTL", str(tmp_path / "none"))
    with pytest.raises(TargetError, match=r"^engine rtl finds no verilated attention kernel in [^\n]+ or choose hls$"):
        Emulator(tmp_path / "drive.kv", "rtl")
    assert not (tmp_path / "drive.kv").exists()
