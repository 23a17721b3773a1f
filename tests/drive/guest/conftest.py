"""The Linux that is a host of the drive."""

from pathlib import Path

import pytest

from guest import GuestUnavailableError, Image, prepare

BUILD = Path(__file__).resolve().parents[3] / "build/guest"


@pytest.fixture(scope="session")
def image() -> Image:
    """Skips where the guest cannot be prepared."""
    try:
        return prepare(BUILD)
    except GuestUnavailableError as error:
        pytest.skip(str(error))
