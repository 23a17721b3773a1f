# SPDX-License-Identifier: Apache-2.0
"""SIGKILL while a GGUF file becomes a checkpoint folder: it has its name when it is whole, and nothing else is left."""

from __future__ import annotations

import shutil

import killed
import pytest
import torch
from small_models import CONFIGS, random_model
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from kvdrive.generation import gguf


@pytest.mark.parametrize("most", [6, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_a_kill_while_a_file_is_converted_leaves_no_folder_or_a_whole_one(checkpoint, tmp_path, monkeypatch, most):
    model, tokenizer = random_model(CONFIGS["llama"]), PreTrainedTokenizerFast.from_pretrained(checkpoint)
    monkeypatch.setattr(gguf, "load", lambda path, dtype: (model, tokenizer))
    cache = tmp_path / "models"
    folder = cache / "made"

    def convert():
        torch.set_num_threads(1)
        gguf._convert(tmp_path / "some.gguf", folder)

    def begin():
        shutil.rmtree(cache, ignore_errors=True)

    seen = set()
    try:
        for _ in killed.at_every_call(convert, begin, most):
            names = {one.name for one in cache.iterdir()} if cache.exists() else set()
            seen.add(folder.exists())
            assert len(names - {"made"}) <= 1
            if not folder.exists():
                convert()
                assert [one.name for one in cache.iterdir()] == ["made"]
            assert sum(one.numel() for one in AutoModelForCausalLM.from_pretrained(folder).parameters()) == sum(
                one.numel() for one in model.parameters()
            )
    except killed.NoTracingError:
        pytest.skip("this machine lets no process trace its child")
    assert seen == {False, True}
