"""Commands in the pages exist, with the options that the pages give them."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from kvdrive.cli.main import app

FOLDER = Path(__file__).resolve().parents[3]
PAGES = [FOLDER / "README.md", FOLDER / "CONTRIBUTING.md", *sorted((FOLDER / "docs").rglob("*.md"))]
ROOT = get_command(app)


def commands(text):
    """The words of each `kvdrive ...` that stands on an indented line, or alone in backquotes with an option."""
    lines = re.findall(r"^    (?:\$ )?(?:.*(?:&&|;) )?(kvdrive [a-z].*)$", text, re.M)
    quoted = [f"{one} VALUE" for one in re.findall(r"`(kvdrive [a-z][^`\n]* --[^`\n]*)`", text)]  # often left out
    for line in [*lines, *quoted]:
        for part in re.split(r"&&|[;&|](?: |$)|  +#", line.replace("--help", "")):
            if part.strip().startswith("kvdrive ") and not re.search(r"\.\.\.|\[|…", part):
                yield shlex.split(part.strip())


def parsed(words):
    """What is left of a command's words. Raises for options that it does not have."""
    command, path = ROOT, ["kvdrive"]
    for word in words[1:]:
        if not hasattr(command, "commands"):
            break
        command = command.commands[word]
        path.append(word)
    with command.make_context(path[-1], [], resilient_parsing=True, help_option_names=["-h", "--help"]) as context:
        context.resilient_parsing = False
        return command.make_parser(context).parse_args(words[len(path) :])[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_have_the_options_that_it_names(page):
    for words in commands(page.read_text()):
        if words[1] == "lm-eval":
            continue
        assert words[1] in ROOT.commands, words
        parsed(words)


def test_pages_name_many_commands():
    assert sum(len(list(commands(page.read_text()))) for page in PAGES) > 60
