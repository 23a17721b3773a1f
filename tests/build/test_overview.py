# SPDX-License-Identifier: Apache-2.0
"""docs/overview.svg shows folders that exist, and is what its script draws."""

import pytest

import overview


def test_the_picture_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["overview.py", "--check"])
    assert overview.main() == 0


def test_a_folder_that_moved_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = overview.Box(0, 0, 10, "engines", (), "sim/drive/elsewhere", overview.PAPER)
    monkeypatch.setattr(overview, "BOXES", (moved,))
    with pytest.raises(FileNotFoundError, match="sim/drive/elsewhere is not a folder"):
        overview.draw()
