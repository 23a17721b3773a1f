# SPDX-License-Identifier: Apache-2.0
"""Emulated cards for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from emulated_cards import Cards, set_up_cards


@pytest.fixture
def cards(tmp_path: Path) -> Callable[..., Cards]:
    """Makes cards with the given options (xrt.card.CardOptions). Skips where XRT cannot be used."""
    return partial(set_up_cards, tmp_path)
