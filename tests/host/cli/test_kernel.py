"""`kvdrive kernel`: one kernel on arrays from disk, under every engine."""

import json

import numpy as np
import pytest
from pairs import by_value
from random_halves import halves
from typer.testing import CliRunner

from kvdrive import abi
from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.kernels.registry import KERNELS

RUNNER = CliRunner()


def inputs(name, mode, seed=7):
    rng = np.random.default_rng(seed)
    g, s, d, t = 2, 70, 64, 5
    if name == "argtopk":
        return {"keys": rng.standard_normal(300).astype(np.float32), "k_top": 17}
    if name == "page_filter":
        pages = rng.integers(0, 256, 3 * 4096, dtype=np.uint8)
        return {
            "pages": pages,
            "bitmap": rng.integers(0, 256, 16, dtype=np.uint8),
            "rows": 120,
            "row_bytes": 96,
            "page_bytes": 4096,
        }
    if name == "gemv" and mode == "accumulate":
        p = (rng.integers(0, 65536, (g, s)) << rng.integers(0, 15, (g, s))).astype(np.uint32)
        return {"p": p, "v": halves(rng, s, d)}
    if name == "gemv":
        return {"q": halves(rng, g, d), "k": halves(rng, s, d)}
    scores = rng.integers(-(1 << 23), 1 << 23, (g, t), dtype=np.int32)
    valid = rng.random(s) < 0.8
    if name == "softmax":
        dense = rng.integers(-(1 << 23), 1 << 23, s, dtype=np.int32)
        return {"scores": dense, "valid": valid, "tail_scores": scores[0]}
    arrays = {"q": halves(rng, g, d), "k": halves(rng, s, d), "v": halves(rng, s, d), "valid": valid}
    arrays |= {"inline_scores": scores, "inline_v": halves(rng, t, d), "scale": np.float64(0.1)}
    return arrays | ({"r": 16, "k_top": 24, "l": 4} if mode == "sparf" else {})


CASES = [(kernel.name, mode) for kernel in KERNELS.values() for mode in (kernel.modes or ("",))]


@pytest.fixture
def saved(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "in.npz", **arrays)
        return str(tmp_path / "in.npz")

    return save


def kernel(*arguments):
    return RUNNER.invoke(app, ["kernel", *arguments])


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_engines_agree_bit_for_bit(saved, name, mode):
    source = saved(**inputs(name, mode))
    result = kernel("compare", name, "--in", source, "--mode", mode, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)
    exact = [row for row in rows if row["engine"] != "float64"]
    assert {row["engine"] for row in exact} == {"hls", "fast"}
    assert all(row["identical"] for row in exact)
    assert {row["output"] for row in exact} >= {"status"}
    assert any(row["values"] > 1 for row in exact)


@by_value({"name, mode": CASES, "engine": ["golden", "hls", "fast", "float64"]})
def test_run_writes_the_documented_outputs(saved, tmp_path, name, mode, engine):
    source, target = saved(**inputs(name, mode)), tmp_path / "out.npz"
    arguments = ["--in", source, "--out", str(target), "--engine", engine, "--mode", mode, "--json"]
    result = kernel("run", name, *arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    with np.load(target) as out:
        assert int(out["status"]) == report["status"] == 0
        documented = set(KERNELS[name].outputs) | {"status"}
        assert set(out.files) <= documented
        assert len(out.files) > 1


def test_failing_status_is_reported_and_written(saved, tmp_path):
    source = saved(keys=np.ones(4, np.float32), k_top=5)
    target = tmp_path / "out.npz"
    result = kernel("run", "argtopk", "--in", source, "--out", str(target), "--engine", "hls")
    assert result.exit_code == 2
    assert "BAD_K" in result.output
    with np.load(target) as out:
        assert int(out["status"]) == abi.Status.BAD_K


def test_list_names_every_kernel_and_key():
    result = kernel("list", "--json")
    listed = json.loads(result.output)
    assert set(listed) == set(KERNELS)
    assert "inline_scores" in listed["attention"]["inputs"]
    assert kernel("list").exit_code == 0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"q": np.ones((1, 32), np.float32)}, "q is float32"),
        ({"q": np.ones((1, 32), np.float16)}, "missing k, v"),
        ({"other": np.ones(3)}, "has no input other"),
        (
            {"q": np.ones((1, 32), np.float16), "k": np.ones((4, 64), np.float16), "v": np.ones((4, 64), np.float16)},
            "differ in d",
        ),
        (
            {"q": np.ones(32, np.float16), "k": np.ones((4, 32), np.float16), "v": np.ones((4, 32), np.float16)},
            "dimensions",
        ),
    ],
)
def test_bad_inputs_name_the_key(saved, tmp_path, arrays, message):
    target = tmp_path / "out.npz"
    result = kernel("run", "attention", "--in", saved(**arrays), "--out", str(target))
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert not target.exists()


@pytest.mark.parametrize(
    ("p", "fits"), [((1 << 20) - 1, True), (1 << 31, True), ((1 << 20) + 1, False), (3 << 30, False)]
)
def test_probabilities_wider_than_the_multipliers_are_refused(saved, tmp_path, p, fits):
    source = saved(p=np.full((1, 2), p, np.uint32), v=np.ones((2, 32), np.float16))
    result = kernel("compare", "gemv", "--in", source, "--mode", "accumulate", "--engines", "golden,hls,fast")
    if fits:
        assert result.exit_code == 0, result.output
    else:
        assert isinstance(result.exception, InputError)
        assert "20 significant bits" in str(result.exception)


def test_unreadable_file_unknown_kernel_and_mode(tmp_path):
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"not a zip")
    for arguments, message in (
        (["run", "argtopk", "--in", str(broken), "--out", str(tmp_path / "o")], "cannot be read"),
        (["run", "sort", "--in", str(broken), "--out", str(tmp_path / "o")], "no kernel 'sort'"),
        (["run", "softmax", "--in", str(broken), "--out", str(tmp_path / "o"), "--mode", "x"], "no mode 'x'"),
        (["compare", "softmax", "--in", str(broken), "--engines", "golden"], "two or more"),
    ):
        result = kernel(*arguments)
        assert isinstance(result.exception, InputError), arguments
        assert message in str(result.exception)
