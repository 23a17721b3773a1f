# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of memory ports: programs that move elements."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def transfer() -> ModuleType:
    """transfer.py beside this file (test folders are no packages)."""
    spec = importlib.util.spec_from_file_location("openhls_transfer", Path(__file__).with_name("transfer.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
