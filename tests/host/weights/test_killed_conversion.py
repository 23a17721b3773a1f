# SPDX-License-Identifier: Apache-2.0
"""SIGKILL while a file of weights is written: it has its name when it is whole, and the next conversion goes on."""

from __future__ import annotations

import killed
import pytest
import torch
from rich.console import Console
from small_models import CONFIGS, random_model

from kvdrive.weights.file import WeightsFile
from kvdrive.weights.opening import make_file


def test_a_kill_while_weights_are_converted_leaves_no_file_or_a_whole_one(tmp_path):
    folder, path = tmp_path / "checkpoint", tmp_path / "w.kvw"
    random_model(CONFIGS["llama"]).save_pretrained(folder)

    def convert():
        torch.set_num_threads(1)
        make_file(folder, path, "auto", Console(quiet=True))

    def begin():
        for one in (path, path.with_name(path.name + ".partial")):
            one.unlink(missing_ok=True)

    convert()
    whole = path.read_bytes()
    seen = set()
    try:
        for _ in killed.at_every_call(convert, begin, most=6):
            seen.add((path.exists(), path.with_name(path.name + ".partial").exists()))
            if path.exists():
                assert path.read_bytes() == whole
            convert()
            assert path.read_bytes() == whole
            assert WeightsFile(path).manifest is not None
            assert not path.with_name(path.name + ".partial").exists()
    except killed.NoTracingError:
        pytest.skip("this machine lets no process trace its child")
    assert (False, True) in seen
    assert (True, False) in seen
