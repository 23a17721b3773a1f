"""Files that other programs read: versions agree, and what a file names is there."""

import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

import yaml
from typer.main import get_command

import kvdrive
from kvdrive.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_version_changelog_and_citation_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    heading = re.search(r"^## (\S+)( \(not released\))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert PROJECT["version"].startswith(heading[1])
    assert (".dev" in PROJECT["version"]) == bool(heading[2])
    assert any(author["name"] in citation["authors"][0]["name"] for author in PROJECT["authors"])


def test_the_classifiers_name_this_python():
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"Programming Language :: Python :: {here}" in PROJECT["classifiers"]


def test_exports_have_types():
    assert (ROOT / "host/kvdrive/py.typed").exists()
    assert sorted(kvdrive.__all__) == kvdrive.__all__ == sorted(kvdrive._EXPORTS)
    for name in kvdrive.__all__:
        assert getattr(kvdrive, name).__module__ == kvdrive._EXPORTS[name]
    typed = (ROOT / "host/kvdrive/__init__.py").read_text().partition("if TYPE_CHECKING:")[2].partition("\n\n")[0]
    assert {tuple(found) for found in re.findall(r"from (\S+) import (\w+)", typed)} == {
        (module, name) for name, module in kvdrive._EXPORTS.items()
    }


def test_hosted_tests_run_the_test_command():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_hooks_before_a_commit_are_parts_of_lint():
    rules = (ROOT / "Makefile").read_text()
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        words = [word for word in shlex.split(hook["entry"]) if word != "--force-exclude"]
        assert " ".join(words).replace(".venv/bin", "$(BIN)") in rules


def test_the_container_serves():
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    sources = [word for name, *rest in words if name == "COPY" and not rest[0].startswith("--") for word in rest[:-1]]
    assert sources == [".", "constraints.txt"]
    assert all((ROOT / source).exists() for source in sources)
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", "".join(lines))
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    (entry,) = [yaml.safe_load(" ".join(rest)) for name, *rest in words if name == "ENTRYPOINT"]
    (program, name, *arguments) = entry
    assert program in PROJECT["scripts"]
    command = get_command(app).commands[name]
    with command.make_context(name, [], resilient_parsing=True, help_option_names=["-h", "--help"]) as context:
        context.resilient_parsing = False
        given, left, _ = command.make_parser(context).parse_args(arguments)
    assert (given["host"], left) == ("0.0.0.0", [])


def test_the_owner_is_asked_for_an_address():
    assert "SECURITY-CONTACT" in (ROOT / "SECURITY.md").read_text()
