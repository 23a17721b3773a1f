"""The kernel mode of docs/design/extend.md, made as the page says: compiled kernel, RTL and oracle give equal bits."""

import json
import re
import shutil
from pathlib import Path

import pytest
from extend_page import ROOT, apply, python, sections

MODE = """
import numpy as np
from golden import gemv

rng = np.random.default_rng(1)
q, k = (rng.standard_normal((n, 64)).astype(np.float16) for n in (2, 50))
found = gemv.gemv_magnitudes(q, k).dots.view(np.float32)
np.testing.assert_allclose(found, q.astype(np.float64) @ abs(k.astype(np.float64)).T, rtol=1e-6)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the kernels' sources with the changes of the page."""
    tree = tmp_path_factory.mktemp("mode")
    for folder in ("abi", "hls", "sim/golden", "sim/csim", "sim/compiled", "sim/openhls", "sim/rtl", "sim/tb"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)  # so that what is built stays in the copy
    apply("Add a kernel mode", tree)
    return tree


def test_the_oracle_of_the_mode_takes_magnitudes(tree: Path) -> None:
    python(tree, "-c", MODE)


@pytest.mark.slow
def test_the_compiled_kernel_has_the_mode(tree: Path) -> None:
    table = python(tree, "-m", "csim", "gemv", "--jobs", "1").stdout
    found = re.search(r"gemv +│ plain │ +(\d+) │ +[\d,]+ │ +(\d+)", table)
    assert found is not None
    assert found.groups() == (re.search(r"compares (\d+) cases", sections()["Add a kernel mode"]).group(1), "0")


@pytest.mark.slow
def test_the_rtl_has_the_mode(tree: Path, verilator: None) -> None:
    assert "5 of 5 tests passed" in python(tree, "-m", "tb", "gemv_g1", "--small").stdout
    (report,) = (tree / "build").rglob("report.json")
    assert json.loads(report.read_text())["coverage"]["tokens"]["magnitudes, 32 or more"] > 0
