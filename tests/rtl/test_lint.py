# SPDX-License-Identifier: Apache-2.0
"""`verilator --lint-only -Wall`, without any option that silences it, has nothing to say about the kernels."""

from pathlib import Path

import pytest

from openhls.cosim import simulate
from rtl.build import build
from rtl.kernels import Top, all_tops


@pytest.mark.slow
@pytest.mark.parametrize("top", all_tops(), ids=lambda top: top.name)
def test_a_kernel_is_clean(top: Top, tmp_path: Path) -> None:
    design = build(top, tmp_path).design
    files = sorted((design.folder / "rtl").glob("*.sv"))
    simulate.run([simulate.verilator(), "--lint-only", "-Wall", "--top-module", design.top, *files])
