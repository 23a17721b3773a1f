"""Shared by the golden tests: the literal model, which implements docs/arithmetic.md with integers and Fractions."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def literal() -> ModuleType:
    """The module literal.py beside this file (test folders are no packages)."""
    path = Path(__file__).with_name("literal.py")
    spec = importlib.util.spec_from_file_location("golden_literal", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
