# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the front end: the comparison with g++."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def differences() -> Callable[..., list[str]]:
    """`differences` of oracle.py beside this file (test folders are no packages)."""
    path = Path(__file__).with_name("oracle.py")
    spec = importlib.util.spec_from_file_location("openhls_oracle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.differences
