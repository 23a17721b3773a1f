# SPDX-License-Identifier: Apache-2.0
"""Emulated cards for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from emulated_cards import Cards

from xrt import card, images
from xrt.prefix import RuntimeMissing, system_libraries


@pytest.fixture
def cards(tmp_path: Path) -> Callable[..., Cards]:
    """Makes cards with the given options (xrt.card.CardOptions). Skips where XRT cannot be used."""
    try:
        system_libraries()
    except RuntimeMissing as error:
        pytest.skip(str(error))
    if images.kernels_library() is None:
        pytest.skip("the native extension was built before XRT was installed: make setup")

    def make(**options: object) -> Cards:
        try:
            environment = card.set_up(tmp_path, card.CardOptions(**options))  # type: ignore[arg-type]
        except RuntimeMissing as error:
            pytest.skip(str(error))
        return Cards(tmp_path, environment)

    return make
