# SPDX-License-Identifier: Apache-2.0
"""Modelled engine time: the cycles that the kernels' manifests state, at the preset's clock."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from coded_rows import FORMATS, as_stored, encode
from pairs import in_pairs

from kvdrive import abi
from kvdrive.nvme.wire import RowFormat

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path("scripts/engine_cycles.py")
HEADER = Path("sim/drive/engine/cycles.hpp")
CHOICE = Path("hls/group_choice/kernel.toml")
FFN = Path("hls/ffn/kernel.toml")
CODES = Path("hls/attention_codes/kernel.toml")


def stated(group: int, **variables: int) -> int:
    """Formula and fill of the manifest of a group size."""
    cycles = json.loads((ROOT / f"bitstreams/attention_g{group}.json").read_text())["cycles"]
    unused = dict.fromkeys(("inline_tokens", "r", "k_top", "digits"), 0)
    return eval(cycles["formula"], {}, {"g": group, **unused, **variables}) + cycles.get("fill", 0)


def spent(host, q: np.ndarray, tokens: int, **fields: int) -> int:
    """Engine cycles of one query."""
    before = host.drive.flash_stats()["engine_cycles"]
    result = host.submit(q, tokens, **fields)
    assert result.status == abi.NvmeStatus.SUCCESS
    return host.drive.flash_stats()["engine_cycles"] - before


@in_pairs(
    {
        "group": abi.GROUP_SIZES,
        "d, tokens": [(32, 1), (64, 65), (128, 700), (256, 33)],
        "mode": [abi.Mode.EXACT, abi.Mode.PARTIAL],
    }
)
def test_a_dense_job_takes_the_stated_cycles(host, group, d, tokens, mode):
    rows = np.ones((2, tokens, d), np.float16)
    host.store(rows, rows)
    cycles = spent(host, np.ones((2, group, d), np.float16), tokens, mode=mode)
    assert cycles == 2 * stated(group, mode=mode, d=d, tokens=tokens)


@pytest.mark.parametrize("engine", ["fast", "hls"])
@pytest.mark.parametrize(
    ("kind", "group", "d", "tokens"),
    [
        (RowFormat.INT8, 1, 64, 300),
        (RowFormat.INT8, 4, 128, 300),
        (RowFormat.INT8, 4, 192, 33),
        (RowFormat.INT4, 1, 64, 300),
        (RowFormat.INT4, 1, 128, 300),
        (RowFormat.INT4, 1, 256, 33),
        (RowFormat.INT4, 4, 64, 300),
        (RowFormat.INT4, 4, 128, 300),
    ],
)
def test_a_job_over_codes_takes_the_stated_cycles(make_drive, engine, kind, group, d, tokens):
    host = make_drive(engine=engine)
    rows = encode(np.ones((1, tokens, d), np.float16), kind)
    host.store(rows, rows, type=kind)
    formula = tomllib.loads((ROOT / CODES).read_text())["cycles"]["formula"].replace("\n", " ")
    bits = FORMATS[kind]
    variables = {"g": group, "d": d, "tokens": tokens, "inline_tokens": 0, "mode": abi.Mode.EXACT, "bits": bits}
    cycles = spent(host, np.ones((1, group, d), np.float16), tokens, mode=abi.Mode.EXACT)
    assert cycles == eval(formula, {}, variables)
    assert cycles < stated(group, mode=abi.Mode.EXACT, d=d, tokens=tokens)


@pytest.mark.parametrize(
    ("group", "d", "kind"),
    [
        (2, 64, RowFormat.INT8),
        (1, 96, RowFormat.INT8),
        (1, 192, RowFormat.INT4),
        (2, 128, RowFormat.INT4),
        (1, 128, RowFormat.FP8),
        (4, 64, RowFormat.FP8),
    ],
)
def test_rows_that_no_kernel_reads_count_as_decoded(host, group, d, kind):
    rows = encode(np.ones((1, 65, d), np.float16), kind)
    host.store(rows, rows, type=kind)
    cycles = spent(host, np.ones((1, group, d), np.float16), 65, mode=abi.Mode.EXACT)
    assert cycles == stated(group, mode=abi.Mode.EXACT, d=d, tokens=65)


@pytest.mark.parametrize(("group", "d", "tokens", "unit"), [(1, 64, 704, 32), (4, 128, 1600, 16), (8, 256, 640, 128)])
def test_a_choice_of_groups_takes_the_stated_cycles(host, group, d, tokens, unit):
    formula = tomllib.loads((ROOT / "hls/group_choice/kernel.toml").read_text())["cycles"]["formula"]
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((1, tokens, d)).astype(np.float16)
    host.store(rows, rows, options=abi.AppendOption.APPEND_GROUPS)
    cycles = spent(host, rows[:, :group], tokens, mode=abi.Mode.GROUPS, r=unit, k_top=2)
    last = tokens % unit or unit
    variables = {"g": group, "d": d, "inline_tokens": 0, "tokens": tokens, "units": -(-tokens // unit)}
    choice = eval(formula.replace("\n", " "), {}, variables)
    assert cycles == choice + stated(group, mode=abi.Mode.EXACT, d=d, tokens=unit + last)


@pytest.mark.parametrize(("r", "k_top", "tokens"), [(8, 40, 700), (40, 20, 300), (64, 300, 1300)])
@pytest.mark.parametrize(
    ("group", "kind"),
    [(1, RowFormat.BINARY16), (8, RowFormat.BINARY16), (1, RowFormat.INT8), (4, RowFormat.INT4), (8, RowFormat.FP8)],
)
def test_the_three_jobs_of_sparf_take_the_stated_cycles(host, group, kind, r, k_top, tokens):
    """Over rows in 8 and 4 bits as well, which are decoded before the jobs."""
    rng = np.random.default_rng(3)
    rows = as_stored(rng.standard_normal((1, tokens, 64)).astype(np.float16), kind)[0]
    host.store(rows, rows, options=abi.AppendOption.APPEND_SPARSE, type=kind)
    q = rng.standard_normal((1, group, 64)).astype(np.float16)
    cycles = spent(host, q, tokens, mode=abi.Mode.SPARF_ATTEND, r=r, k_top=k_top, local=4)
    choice = {"d": 64, "r": r, "k_top": k_top}
    # the number of digits of a choice depends on the data: take the most possible
    assert cycles == (
        stated(group, mode=abi.Mode.SPARF_ROWS, digits=2, tokens=tokens, **choice)
        + stated(group, mode=abi.Mode.SPARF_TOKENS, digits=4, tokens=tokens, **choice)
        + stated(group, mode=abi.Mode.SPARF_ATTEND, tokens=k_top, **choice)
    )


def test_the_clock_is_the_preset_s(make_drive):
    """Staged rows need only the engine, so the times of two queries differ by the cycles of one."""
    rows, q = np.ones((1, 7, 64), np.float16), np.ones((1, 1, 64), np.float16)
    host = make_drive(preset="instcsd")
    host.store(rows, rows)
    times = []
    for tokens in (1, 7):
        before = host.drive.flash_stats()["device_ns"]
        host.submit(q, tokens)
        times.append(host.drive.flash_stats()["device_ns"] - before)
    cycles = [stated(1, mode=abi.Mode.EXACT, d=64, tokens=tokens) for tokens in (1, 7)]
    assert times[1] - times[0] == cycles[1] * 1000 // 285 - cycles[0] * 1000 // 285


def copy_of_tree(folder: Path) -> Path:
    for path in (SCRIPT, HEADER, CHOICE, CODES, FFN, *(ROOT / "bitstreams").glob("attention_g*.json")):
        target = folder / (path.relative_to(ROOT) if path.is_absolute() else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / path).read_text())
    return folder


def check(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, root / SCRIPT, *arguments], capture_output=True, text=True)


def test_the_header_is_that_of_the_manifests(tmp_path):
    root = copy_of_tree(tmp_path)
    assert check(root, "--check").returncode == 0
    for path in (root / "bitstreams").iterdir():
        manifest = json.loads(path.read_text())
        manifest["cycles"] = {"formula": "tokens * d // 32 if mode == 0 else -(-tokens // 16)", "fill": 800}
        path.write_text(json.dumps(manifest))
    assert "differs" in check(root, "--check").stderr
    assert check(root).returncode == check(root, "--check").returncode == 0
    text = (root / HEADER).read_text()
    assert "return (mode == 0 ? ((tokens * d) / 32) : divide_up(tokens, 16)) + 800;" in text


@pytest.mark.parametrize(
    ("formula", "reason"),
    [("tokens ** 2", "C++ does not get"), ("cycles", "C++ does not get"), ("tokens", "different")],
)
def test_a_formula_that_cannot_be_is_refused(tmp_path, formula, reason):
    root = copy_of_tree(tmp_path)
    for path in (root / "bitstreams").iterdir():
        manifest = json.loads(path.read_text())
        if reason != "different" or path.stem == "attention_g1":
            manifest["cycles"] = {"formula": formula}
        path.write_text(json.dumps(manifest))
    result = check(root)
    assert result.returncode == 1
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
