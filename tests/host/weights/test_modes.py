"""The memory of each mode, as `kvdrive doctor --model` says it; and the benchmark's contenders on a tiny mixture."""

import json
from dataclasses import asdict

import moe_models
import pytest
import torch
from rich.console import Console
from small_models import CONFIGS
from typer.testing import CliRunner

import bench_dense
import bench_weights
import dense_contenders
from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.generation import places
from kvdrive.weights.opening import FlashOptions, load, make_file
from page_blocks import write_blocks
from weights_contenders import QUICK, make_checkpoint

QUIET = Console(quiet=True)


def doctor(folder, *options):
    result = CliRunner().invoke(app, ["doctor", "--model", str(folder), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", ["mixtral", "qwen2-moe"])
def test_the_doctor_says_what_each_mode_needs(name, tmp_path):
    folder = moe_models.save(name, tmp_path / "model")
    found = json.loads(doctor(folder, "--json"))["weights"]
    model = moe_models.in_memory(folder)
    assert found["memory"] == {"float32": 4 * model.num_parameters(), "bfloat16": 2 * model.num_parameters()}
    path = make_file(folder, tmp_path / "w.kvw", "auto", QUIET).path
    checkpoint = load(str(folder), "float32", FlashOptions(path, 1 << 30))
    checkpoint.weights.close()
    need = checkpoint.weights.need
    pages = need.least * (need.slot - checkpoint.weights.file.manifest.experts[0].bytes_in(torch.float32))
    assert found["flash_at_least"]["float32"] == need.minimum - pages
    assert "experts on flash, at least" in doctor(folder)


def test_a_model_whose_layers_are_unknown_has_one_mode(tmp_path):
    CONFIGS["phi3"].save_pretrained(tmp_path)
    assert json.loads(doctor(tmp_path, "--json"))["weights"]["flash_at_least"] is None
    shown = doctor(tmp_path)
    assert "all of them" in shown
    assert "on flash" not in shown


def test_the_least_memory_of_a_dense_model_is_taken(tmp_path):
    least = json.loads(doctor("mini", "--json"))["weights"]["flash_at_least"]["bfloat16"]
    path = make_file(places.find("mini"), tmp_path / "w.kvw", "auto", QUIET).path
    load("mini", "auto", FlashOptions(path, least + 4)).close()
    with pytest.raises(InputError, match="give --weights-memory"):
        load("mini", "auto", FlashOptions(path, least - 4))


def test_the_contenders_of_the_benchmark_compute_the_same(tmp_path):
    make_checkpoint(QUICK, tmp_path)
    (tmp_path / "shape.json").write_text(json.dumps(asdict(QUICK)))
    make_file(tmp_path, tmp_path / "w.kvw", "auto", QUIET)
    rows = [bench_weights.measure(work) for work in bench_weights.contenders(tmp_path, tokens=3, threads=1)[:4]]
    whole, mapped, flash, ahead = rows
    assert whole["logits"] == flash["logits"] == ahead["logits"]
    torch.testing.assert_close(torch.tensor(mapped["logits"]), torch.tensor(whole["logits"]), rtol=0.05, atol=0.05)
    uses = 3 * QUICK.layers * QUICK.used
    assert mapped["hits"] + mapped["misses"] == uses
    for row in (flash, ahead):
        assert row["hits"] + row["hits_ahead"] + row["misses"] == uses
    assert flash["flash_bytes"] == flash["misses"] * 3 * QUICK.hidden * QUICK.inner * 2
    read = round(flash["read_by_kernel_per_token"] * 3)
    assert read >= flash["flash_bytes"] or read == 0  # none came from the page cache; 0: the folder is in memory
    assert flash["recall"] is None
    assert 0 <= ahead["recall"] <= 1
    result = {"rows": rows, "shape": asdict(QUICK), "bytes": 1, "convert_seconds": 1, "disk_bytes_per_second": 1e9}
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench-weights -->\nold\n<!-- end -->\nafter\n")
    write_blocks(page, {"bench-weights": bench_weights.table(result)})
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")
    assert "| flash at 25%, lfu, look-ahead on |" in page.read_text()
    assert "old" not in page.read_text()


def distance(row, other):
    """Of the logits of two contenders."""
    return (torch.tensor(row["logits"]) - torch.tensor(other["logits"])).norm()


def test_the_steps_of_the_dense_benchmark_compute_the_same_and_read_less(tmp_path):
    shape = dense_contenders.QUICK
    size = bench_dense.prepare(shape, tmp_path, QUIET)
    rows = [bench_dense.measure(step, tmp_path, tokens=4, threads=1) for step in bench_dense.STEPS]
    whole, cut, mapped, naive, hybrid, threshold, window = rows
    for row in (mapped, naive, hybrid):
        torch.testing.assert_close(torch.tensor(row["logits"]), torch.tensor(whole["logits"]), rtol=0.05, atol=0.05)
    for row in (threshold, window):  # roundings move a few activations across a threshold
        assert distance(row, cut) < distance(whole, cut) / 3
    every = 4 * shape.layers * 2 * shape.hidden * shape.inner * 2
    assert every * 0.8 < naive["flash_bytes"] <= every
    assert naive["flash_bytes"] > hybrid["flash_bytes"] > threshold["flash_bytes"] >= window["flash_bytes"] > 0
    assert naive["neurons_in_memory"] < hybrid["neurons_in_memory"]
    result = {"rows": rows, "shape": asdict(shape), "bytes": size, "tokens": 4, "threads": 1}
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench-dense -->\nold\n<!-- end -->\nafter\n")
    write_blocks(page, {"bench-dense": bench_dense.table(result)})
    assert "| + window of 5 tokens |" in page.read_text()
