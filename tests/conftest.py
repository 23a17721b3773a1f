"""What all folders share: the order of the tests, a fixture, a ^C that works, and matrices with the same bits."""

import os
import signal

import pytest
from durations import pytest_addoption, pytest_collection_modifyitems, pytest_configure  # noqa: F401 - hooks

from openhls.backend import simulate

# Before torch is imported: on processors without AVX-512, the bits of its float32 products depend on addresses.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """^C works in each test. Shells start background jobs with SIGINT ignored, and commands set their own handlers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def verilator() -> None:
    """Skips where the simulator is missing."""
    try:
        simulate.verilator()
    except simulate.ToolError as error:
        pytest.skip(str(error))
