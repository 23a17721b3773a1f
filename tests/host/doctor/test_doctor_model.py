"""`kvdrive doctor --model`: one row for a checkpoint, from its configuration alone."""

import json
from pathlib import Path

import pytest
from family_models import SERVED
from small_models import CONFIGS
from transformers import DeepseekV3Config, LlamaConfig, MistralConfig
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.doctor.model import row_of

RUNNER = CliRunner()
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def doctor(tmp_path):
    def call(config, *options):
        config.save_pretrained(tmp_path)
        return RUNNER.invoke(app, ["doctor", "--model", str(tmp_path), *options], env={"COLUMNS": "80"})

    return call


def test_one_row_with_bytes_and_context(doctor):
    config = LlamaConfig(
        num_hidden_layers=28, num_attention_heads=32, num_key_value_heads=8, head_dim=128, hidden_size=4096
    )
    result = doctor(config, "--json")
    assert result.exit_code == 0, result.output
    row = json.loads(result.output)
    assert (row["family"], row["group"], row["head_dim"], row["verdict"]) == ("llama", 4, 128, "served")
    assert row["bytes_per_token"] == 28 * 2 * 8 * 128 * 2
    assert row["tokens_that_fit"] == 2048
    shown = doctor(config)
    assert "114,688" in shown.output
    assert max(map(len, shown.output.splitlines()[:-1])) <= 80


def test_a_small_disk_limits_the_context():
    row = row_of("x", CONFIGS["llama"], 100_000)
    assert row.bytes_per_token == 2 * 2 * 2 * 32 * 2
    assert row.tokens_that_fit == 100_000 // row.bytes_per_token < row.positions


def test_layers_in_memory_cost_the_drive_nothing():
    row = row_of("x", SERVED["granite4"][0], 1 << 40)
    assert (row.layers_on_drive, row.layers_in_memory) == (1, 1)
    assert row.bytes_per_token == 2 * 2 * 32 * 2
    assert row.verdict == "served"


def test_an_all_sliding_model_needs_no_drive(doctor):
    result = doctor(MistralConfig())
    assert result.exit_code == 0
    assert "runs, but needs no drive" in result.output


def test_a_refused_model_says_why_and_fails(doctor):
    result = doctor(DeepseekV3Config())
    assert result.exit_code == 1
    assert "refused: it keeps a compressed latent" in result.output
    assert "run it with transformers alone" in result.output
