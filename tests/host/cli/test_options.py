"""Commands that generate share their options: the same names, defaults, choices and explanations."""

import re
import subprocess
import sys
from dataclasses import fields
from typing import get_args

import in_process
import pytest
from typer.main import get_command

from kvdrive.choices import DTYPES, ENGINES
from kvdrive.cli.main import app
from kvdrive.cli.options import FolderOptions, ModelOptions, PolicyOptions, TargetOptions
from kvdrive.policies import POLICIES

COMMANDS = get_command(app).commands
GROUPS = {
    "generate": (ModelOptions, TargetOptions, FolderOptions, PolicyOptions),
    "serve": (ModelOptions, TargetOptions, FolderOptions, PolicyOptions),
    "run": (ModelOptions, TargetOptions),
    "eval": (ModelOptions, TargetOptions),
}


def names(group):
    """The options of a group."""
    return [one.name for one in fields(group)]


SHARED = {field for groups in GROUPS.values() for group in groups for field in names(group)}


def options(command):
    """All properties of a command's options that a user sees."""
    return {
        one.name: (one.opts, one.default, one.help, one.type_descriptor.annotation, one.min, one.max)
        for one in COMMANDS[command].params
        if one.name in SHARED
    }


@pytest.mark.parametrize("command", GROUPS)
def test_shared_options_are_the_same_everywhere(command):
    groups = {field for group in GROUPS[command] for field in names(group)}
    found, reference = options(command), options("generate")
    assert set(found) == groups
    assert found == {name: reference[name] for name in groups}


@pytest.mark.parametrize(("option", "table"), [("engine", ENGINES), ("dtype", DTYPES)])
def test_choices_come_from_the_tables(option, table):
    (found,) = [one for one in COMMANDS["generate"].params if one.name == option]
    assert get_args(found.type_descriptor.annotation) == tuple(table)


def test_help_explains_every_policy():
    (found,) = [one for one in COMMANDS["generate"].params if one.name == "attention"]
    assert all(f"{name}: {entry.summary}" in found.help for name, entry in POLICIES.items())
    assert found.metavar == f"[{'|'.join(POLICIES)}]"
    (policies,) = [one for one in COMMANDS["eval"].params if one.name == "policies"]
    assert policies.help.startswith(", ".join(POLICIES))


def test_help_shows_common_options_first_and_others_in_panels():
    shown = {one.name: one.rich_help_panel for one in COMMANDS["serve"].params}
    assert {name for name, panel in shown.items() if panel is None} >= {"model", "drive", "attention", "port"}
    assert set(shown.values()) == {None, "Model", "Storage", "Attention", "Sessions", "Weights"}


def test_help_imports_no_torch():
    program = (
        "import sys; from kvdrive.cli.main import app\n"
        "try: app(['generate', '--help'])\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.split()[0] == "False"
    assert re.search("--attention", done.stdout)


def test_a_choice_that_is_none_is_refused():
    done = in_process.kvdrive("generate", "--attention", "dense")
    assert done.returncode == 2
    assert "--attention" in done.stderr
    assert "auto, sparf" in done.stderr
