"""The memory of each mode, as `kvdrive doctor --model` says it; and the benchmark's contenders on a tiny mixture."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import moe_models
import pytest
import torch
from rich.console import Console
from small_models import CONFIGS, random_model
from typer.testing import CliRunner

from bench.weights import dense, dense_model, experts
from bench.weights.mixture import QUICK, Shape, balance_routers, make_checkpoint
from bench.weights.processes import require_reads
from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.generation import places
from kvdrive.generation.checkpoints import read_config
from kvdrive.weights.making import make_file
from kvdrive.weights.modes import modes_of
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions

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


@pytest.mark.parametrize("stored", ["int8", "int4"])
def test_the_doctor_says_what_experts_in_fewer_bits_need(stored, tmp_path):
    folder = moe_models.save("mixtral", tmp_path / "model")
    found = json.loads(doctor(folder, "--json"))["weights"]["modes"][f"experts on flash in {stored}"]
    path = make_file(folder, tmp_path / "w.kvw", stored, QUIET).path
    checkpoint = load(str(folder), "float32", FlashOptions(path, 1 << 30))
    checkpoint.weights.close()
    need = checkpoint.weights.need
    assert 0 <= need.minimum - found["float32"] < need.least * 3 * 4096
    assert f"experts on flash in {stored}, at least" in doctor(folder)


@pytest.mark.parametrize(
    ("mode", "stored"), [("neurons on flash in int8", "int8"), ("neurons on flash in int4", "int4")]
)
def test_the_least_memory_of_neurons_in_fewer_bits_is_taken(mode, stored, tmp_path):
    least = json.loads(doctor("mini", "--json"))["weights"]["modes"][mode]["bfloat16"]
    path = make_file(places.find("mini"), tmp_path / "w.kvw", stored, QUIET).path
    load("mini", "auto", FlashOptions(path, int(1.01 * least) + 4)).close()
    with pytest.raises(InputError, match="give `weights_memory="):
        load("mini", "auto", FlashOptions(path, least - 4))


def test_the_least_memory_with_gates_on_flash_is_taken(tmp_path):
    modes = json.loads(doctor("mini", "--json"))["weights"]["modes"]
    rank = modes_of(read_config(places.find("mini"))).with_gates.predictors
    least = modes["gates on flash, too, with predictors"]["bfloat16"] - rank  # this file has no predictors yet
    path = make_file(places.find("mini"), tmp_path / "w.kvw", "auto", QUIET, gates=True).path
    load("mini", "auto", FlashOptions(path, least + 4)).close()
    with pytest.raises(InputError, match="give `weights_memory="):
        load("mini", "auto", FlashOptions(path, least - 4))
    random_model(CONFIGS["opt"]).save_pretrained(tmp_path / "opt")
    assert not any("gates" in mode for mode in json.loads(doctor(tmp_path / "opt", "--json"))["weights"]["modes"])


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
    with pytest.raises(InputError, match="give `weights_memory="):
        load("mini", "auto", FlashOptions(path, least - 4))


def test_the_least_memory_is_the_default_where_half_of_the_weights_are_too_little(tmp_path):
    path = make_file(places.find("mini"), tmp_path / "w.kvw", "auto", QUIET).path
    with pytest.raises(InputError, match="give `weights_memory="):
        load("mini", "auto", FlashOptions(path, Fraction(1, 2)))
    checkpoint = load("mini", "auto", FlashOptions(path))
    report = checkpoint.weights.report()
    checkpoint.close()
    assert 0 < report["neurons_in_memory"] <= report["neurons"] // 16


@pytest.mark.slow
def test_the_contenders_of_the_benchmark_compute_the_same(tmp_path):
    make_checkpoint(QUICK, tmp_path)
    (tmp_path / "shape.json").write_text(json.dumps(asdict(QUICK)))
    make_file(tmp_path, tmp_path / "w.kvw", "auto", QUIET)
    works = experts.contenders(tmp_path, tokens=3, threads=1)
    rows = [experts.measure(work) for work in works if work.routers == "balanced"][:5]
    whole, mapped, advised, flash, ahead = rows
    assert whole["logits"] == flash["logits"] == ahead["logits"]
    uses = 3 * QUICK.layers * QUICK.used
    for row in (mapped, advised):
        torch.testing.assert_close(torch.tensor(row["logits"]), torch.tensor(whole["logits"]), rtol=0.05, atol=0.05)
        assert row["hits"] + row["misses"] == uses
        require_reads(row["name"], tmp_path, row["missing_bytes"], row["read_by_kernel_per_token"] * 3)
    for row in (flash, ahead):
        assert row["hits"] + row["hits_ahead"] + row["misses"] == uses
    assert flash["flash_bytes"] == flash["misses"] * 3 * QUICK.hidden * QUICK.inner * 2
    for row in (flash, ahead):
        require_reads(row["name"], tmp_path, row["flash_bytes"], row["read_by_kernel_per_token"] * 3)
    assert flash["recall"] is None
    assert 0 <= ahead["recall"] <= 1
    result = {"rows": rows, "shape": asdict(QUICK), "bytes": 1, "convert_seconds": 1, "disk_bytes_per_second": 1e9}
    assert "| balanced: flash at 25%, lfu, look-ahead on |" in experts.table(result).text()
    assert 0 < whole["experts_seconds"] < whole["seconds"]
    assert flash["waited_ns"] > 0


def test_what_the_disk_allows_is_its_reads_and_what_comes_before_them():
    memory = {"tokens": 10, "seconds": 1.0, "experts_seconds": 0.8}
    row = {"tokens": 20, "flash_bytes": 20 * 300e6}
    assert experts.allowed(row, memory, 1e9) == pytest.approx(1 / (0.02 + 0.3))
    assert experts.allowed(row, memory, 10e9) == pytest.approx(1 / (0.02 + 0.08))


@pytest.mark.slow
def test_balanced_routers_choose_all_experts_alike(tmp_path):
    shape = Shape(layers=2, hidden=256, inner=64, experts=32, used=2)
    make_checkpoint(shape, tmp_path)
    shares = []
    for balanced in (False, True):
        if balanced:
            balance_routers(tmp_path)
        model = moe_models.in_memory(tmp_path, torch.bfloat16)
        chosen = [[], []]
        for layer, into in zip(model.model.layers, chosen, strict=True):
            layer.mlp.gate.register_forward_hook(lambda module, inputs, out, into=into: into.append(out[2]))
        with torch.no_grad():
            model(torch.randint(0, 512, (1, 500), generator=torch.Generator().manual_seed(5)))
        counts = [torch.bincount(torch.cat(one).flatten(), minlength=32) for one in chosen]
        shares.append([float(one.topk(8).values.sum() / one.sum()) for one in counts])
    assert max(shares[1]) < 0.5  # a quarter of the experts
    assert all(after < before for before, after in zip(*shares, strict=True))


def test_the_limit_of_memory_binds_and_reads_from_the_page_cache_are_refused(tmp_path):
    script = """
import numpy as np, pathlib, sys, torch
from bench.weights import processes
from kvdrive.weights.file import aligned
processes.WORKSPACE = 16 << 20
processes.bound_memory(64 << 20, pathlib.Path(sys.argv[1]))
aligned(128 << 20)
processes.bound_memory(64 << 20)
aligned(60 << 20)[:] = 1
for allocate in (lambda: aligned(128 << 20), lambda: np.ones(128 << 20, np.uint8), lambda: torch.ones(1 << 25)):
    try:
        allocate()
    except (OSError, MemoryError, RuntimeError):
        print("refused")
assert 60 << 20 < processes.peak_memory() < 4 << 30
"""
    paths = os.pathsep.join(sys.path)
    environment = os.environ | {"PYTHONPATH": paths}
    with (tmp_path / "x.safetensors").open("wb") as file:
        file.truncate(100 << 20)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, env=environment
    )
    assert done.stdout.split() == ["refused"] * 3, done.stderr
    path = next(one for one in (Path(__file__), tmp_path) if os.major(one.stat().st_dev))
    with pytest.raises(RuntimeError, match="of 1,000 bytes that were read, 899 came from the disk"):
        require_reads("x", path, 1000, 899)
    require_reads("x", path, 1000, 900)


def distance(row, other):
    """Of the logits of two contenders."""
    return (torch.tensor(row["logits"]) - torch.tensor(other["logits"])).norm()


def test_the_steps_of_the_dense_benchmark_compute_the_same_and_read_less(tmp_path):
    shape = dense_model.QUICK
    size = dense.prepare(shape, tmp_path, QUIET)
    rows = [dense.measure(step, tmp_path, tokens=4, threads=1) for step in dense.STEPS]
    whole, cut, mapped, naive, hybrid, threshold, window, foreseen, kept = rows
    for row in (mapped, naive, hybrid):
        torch.testing.assert_close(torch.tensor(row["logits"]), torch.tensor(whole["logits"]), rtol=0.05, atol=0.05)
    for row in (threshold, window):  # roundings move a few activations across a threshold
        assert distance(row, cut) < distance(whole, cut) / 3
    every = 4 * shape.layers * 2 * shape.hidden * shape.inner * 2
    assert every * 0.8 < naive["flash_bytes"] <= every
    assert naive["flash_bytes"] > hybrid["flash_bytes"] > threshold["flash_bytes"] >= window["flash_bytes"] > 0
    assert naive["neurons_in_memory"] < hybrid["neurons_in_memory"]
    assert 0 < kept["flash_bytes"] <= foreseen["flash_bytes"] < 1.5 * naive["flash_bytes"]  # with their gates
    assert distance(kept, foreseen) < distance(whole, foreseen) / 4  # roundings move a few guesses across zero
    found = dense.extras(tmp_path)
    assert 0 < found["missed"] + found["needless"] < 1  # 1: by chance
    assert found["apart"] is None
    result = {"rows": rows, "shape": asdict(shape), "bytes": size, "tokens": 4, "threads": 1} | found
    assert "| + window of 5 tokens |" in dense.table(result).text()
