"""The table of mini-batches."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import bench_mini_batches
from bench_mini_batches import COUNTS, PAGE, seconds, table
from kvdrive.targets.emulator import Emulator


def test_the_table_has_medians_and_the_page_has_a_place_for_it():
    text = table({4: [(0.2, 0.1), (0.3, 0.3), (0.9, 0.3)]}, 2)
    assert "| 4 | 300 | 300 | 2.00 |" in text
    assert "medians of 3 rounds" in text
    assert "<!-- end -->" in PAGE.read_text().split("<!-- bench-mini-batches -->")[1]


SMALL = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32,
}  # fmt: skip


@pytest.mark.parametrize("count", COUNTS)
def test_steps_of_mini_batches_are_measured(tmp_path, monkeypatch, count):
    monkeypatch.setattr(bench_mini_batches, "TOKENS", 64)
    with Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as drive:
        model = LlamaForCausalLM._from_config(LlamaConfig(**SMALL), dtype=torch.bfloat16).eval()
        assert seconds(model, drive, 1, count) > 0
        assert drive.stats().attention_jobs == 2 * 6 * 4  # layers, steps, sequences


def test_few_rounds_print_the_table_and_leave_the_page(tmp_path, monkeypatch, capsys):
    for name, value in {"TOKENS": 64, "FACTORS": (1,), "LLAMA_426M": SMALL}.items():
        monkeypatch.setattr(bench_mini_batches, name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["bench", "--rounds", "1", "--threads", "1"])
    before = PAGE.read_text()
    bench_mini_batches.main()
    assert "| 1 |" in capsys.readouterr().out
    assert PAGE.read_text() == before
