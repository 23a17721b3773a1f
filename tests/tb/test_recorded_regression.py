# SPDX-License-Identifier: Apache-2.0
"""The regressions of the other kernels, which run if something has changed that they depend on."""

import pytest
from regressions import ALWAYS, TOPS, check


@pytest.mark.parametrize("name", [name for name in TOPS if name not in ALWAYS])
def test_a_kernel_passes_its_regression_or_has_passed_it(
    name: str, verilator: None, pytestconfig: pytest.Config
) -> None:
    check(name, pytestconfig)
