"""Commands that generate share their options: the same names, defaults, choices and explanations."""

import re
import shlex
import subprocess
import sys
from typing import get_args

import in_process
import pytest
from typer.main import get_command

from kvdrive.choices import DTYPES, ENGINES
from kvdrive.cli.main import app
from kvdrive.config.run import GROUPS
from kvdrive.config.text import OPTIONS, flag_of
from kvdrive.policies import POLICIES

ROOT = get_command(app)
COMMANDS = ROOT.commands
FLAGS = {name: flag_of(name) for name in OPTIONS}
SHARED = {
    "generate": set(OPTIONS) - {"lookup", "session_memory"},  # of serve alone
    "serve": set(OPTIONS)
    - {"lookup", "session_memory", "model", "accepted", "mini_batches"},  # it takes several models
    "run": {"model", "dtype", "device", "target", "identity", "engine", "threads", "active", "memory", "xcache"},
    "batch": {*GROUPS["policy"], "kv_format", "assistant"},
    "chat": {*GROUPS["limits"], *GROUPS["weights"], "active"} - {"on_drive"},
    "eval": {"model", "target", "hot_bytes", "weights"},
    "calibrate": {"model", "unit", "kv_format"},
}


def options(command):
    """All properties of a command's options that a user sees."""
    return {
        one.name: (one.opts, one.default, one.help, one.type_descriptor.annotation, one.min, one.max)
        for one in COMMANDS[command].params
        if one.name in FLAGS.values()
    }


@pytest.mark.parametrize("command", SHARED)
def test_shared_options_are_the_same_everywhere(command):
    names = {FLAGS[name] for name in SHARED[command]}
    found, reference = options(command), options("generate")
    assert {name: found.get(name) for name in names} == {name: reference[name] for name in names}


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
    assert set(shown.values()) == {None, "Model", "Storage", "Attention", "Server", "Sessions", "Weights"}


def commands(group, *path):
    """All commands with the words that name them."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, *path, name)
        else:
            yield [*path, name], one


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*one, id=" ".join(one[0])) for one in commands(ROOT) if one[0] != ["lm-eval"]]
)
def test_help_ends_with_an_example_that_the_command_takes(path, command):
    words = shlex.split(command.epilog.removeprefix("Example: kvdrive "))
    assert words[: len(path)] == path
    with command.make_context(path[-1], [], resilient_parsing=True, help_option_names=["-h", "--help"]) as context:
        context.resilient_parsing = False  # only the values are not looked at: files of an example are not there
        _, left, _ = command.make_parser(context).parse_args(words[len(path) :])
    assert not left


@pytest.mark.parametrize("command", ["generate", "serve", "chat", "batch"])
def test_common_options_have_a_letter(command):
    letters = {one.name: [name for name in one.opts if len(name) == 2] for one in COMMANDS[command].params}
    assert letters["model"] == ["-m"]
    common = [name for name, found in letters.items() if found and name != "help"]
    assert len(common) <= 12
    given = [letter for found in letters.values() for letter in found]
    assert len(given) == len(set(given))


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
