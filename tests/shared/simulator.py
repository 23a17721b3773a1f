"""The fixture of tests that simulate RTL. A folder's `conftest.py` imports it."""

import pytest

from openhls.cosim import simulate


@pytest.fixture(scope="session", name="verilator")
def needs_verilator() -> None:
    """Skips where the simulator is missing."""
    try:
        simulate.verilator()
    except simulate.ToolError as error:
        pytest.skip(str(error))
