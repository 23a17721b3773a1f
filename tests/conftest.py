"""What all folders share: the order of the tests, fixtures, a ^C that works, and matrices with the same bits."""

import functools
import importlib
import os
import signal
from types import ModuleType

import pytest
import typer.main
import typer.testing

pytest_plugins = ["durations", "passed"]  # of tests/shared

# Before torch is imported: on processors without AVX-512, the bits of its float32 products depend on addresses.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# The tree of commands is made once and not for each call: it is a function of the application, and takes 0.07 s.
typer.testing._get_command = typer.main.get_command = functools.cache(typer.main.get_command)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """^C works in each test. Shells start background jobs with SIGINT ignored, and commands set their own handlers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def openai() -> ModuleType:
    """The package of OpenAI's official client. Imported where a test uses it: each worker collects all tests."""
    return importlib.import_module("openai")


@pytest.fixture(scope="session")
def anthropic() -> ModuleType:
    """The package of Anthropic's official client, imported as `openai` is."""
    return importlib.import_module("anthropic")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Names of failed tests stand last, because services that show a log show its end, and a difference can be long."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    for report in [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]:
        reporter.write_line(f"failed: {report.nodeid}")
