# SPDX-License-Identifier: Apache-2.0
"""docs/overview.svg shows folders that exist."""

import pytest

from pages import overview


def test_a_folder_that_moved_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = overview.Box(0, 0, 10, "engines", (), "sim/drive/elsewhere", overview.PAPER)
    monkeypatch.setattr(overview, "BOXES", (moved,))
    with pytest.raises(FileNotFoundError, match="sim/drive/elsewhere is not a folder"):
        overview.draw()
