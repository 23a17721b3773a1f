"""A drive in this process, and torch on one thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kvdrive.targets.emulator import Emulator


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as emulator:
        yield emulator


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models gain nothing from threads, and lose much where tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
