"""A fixture that several folders share."""

import pytest

from openhls.backend import simulate


@pytest.fixture(scope="session")
def verilator() -> None:
    """Skips where the simulator is missing."""
    try:
        simulate.verilator()
    except simulate.ToolError as error:
        pytest.skip(str(error))
