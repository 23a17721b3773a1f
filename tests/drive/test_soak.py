# SPDX-License-Identifier: Apache-2.0
"""A few rounds of `make soak`: random commands and faults, compared with arrays in memory."""

import pytest
from pairs import some_quick
from soak import Soak


@pytest.mark.parametrize("seed", some_quick([1, 2], [1]))
def test_a_short_soak(memory_folder, seed):
    soak = Soak(memory_folder, seed)
    for _ in range(25):
        soak.round()
    assert soak.counts["commands"] > 50
    assert soak.counts["mounts"] > 25
