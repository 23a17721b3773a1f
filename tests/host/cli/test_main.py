"""The command line as a whole: help, version, and errors that are one sentence."""

import re
import sys

import pytest
from typer.testing import CliRunner

import kvdrive
from kvdrive.cli import main
from kvdrive.doctor.finding import Finding, State
from kvdrive.errors import InputError

RUNNER = CliRunner()


@pytest.mark.parametrize("command", [[], ["drive"], ["kernel", "run"], ["generate"]])
def test_help_has_a_short_name(command):
    assert RUNNER.invoke(main.app, [*command, "-h"]).exit_code == 0


def test_version():
    assert RUNNER.invoke(main.app, ["--version"]).output == f"kvdrive {kvdrive.__version__}\n"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ModuleNotFoundError("no torch", name="torch.nn"), r"needs the package torch: pip install 'kvdrive\[models\]'"),
        (PermissionError(13, "Permission denied", "/place/out"), "cannot use /place/out: Permission denied"),
    ],
)
def test_errors_of_the_environment_are_one_sentence(monkeypatch, capsys, error, sentence):
    def fail():
        raise error

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert re.fullmatch(f"kvdrive: .*{sentence}\n", capsys.readouterr().err)


def test_other_missing_modules_are_faults_of_ours(monkeypatch):
    def fail():
        raise ModuleNotFoundError("no such", name="kvdrive.nothing")

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(ModuleNotFoundError):
        main.main()


def test_shapes_of_kernels_are_shown():
    """Shapes are in brackets, which a table would interpret as markup."""
    listed = RUNNER.invoke(main.app, ["kernel", "list"]).output
    assert "[n] float32" in listed
    assert "[k_top] uint32" in listed


@pytest.mark.parametrize(
    "command",
    [
        "generate --prompt x --report",
        "run --report",
        "eval --report",
        "generate --prompt x --drive",
        "serve --drive",
        "chat --drive",
    ],
)
def test_output_folders_that_cannot_be_are_one_sentence_before_the_work(tmp_path, command):
    (tmp_path / "file").touch()
    result = RUNNER.invoke(main.app, [*command.split(), str(tmp_path / "file" / "inside")])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"cannot write to {tmp_path / 'file' / 'inside'}: ")


@pytest.mark.parametrize(
    "command",
    [
        ["drive", "serve", "no.kv", "--socket", "s.sock", "--trace", "OUT"],
        ["drive", "trace", "--workload", "prefill", "--out", "OUT"],
        ["kernel", "run", "softmax", "--in", "no.npz", "--out", "OUT"],
    ],
)
def test_output_files_that_cannot_be_are_one_sentence_before_the_work(tmp_path, command):
    out = tmp_path / "none" / "out"
    arguments = [str(out) if word == "OUT" else word for word in command]
    result = RUNNER.invoke(main.app, arguments)
    assert str(result.exception) == f"cannot write to {out}: there is no folder {out.parent}"


@pytest.mark.parametrize(
    "command", ["eval --text", "generate --prompt x --identity", "generate --prompt-file", "drive serve no.kv --hosts"]
)
def test_input_files_that_are_not_there_are_one_sentence_before_the_work(tmp_path, command):
    missing = tmp_path / "missing"
    result = RUNNER.invoke(main.app, [*command.split(), str(missing)])
    assert isinstance(result.exception, InputError)
    assert re.fullmatch(f"cannot read (the prompt )?{missing}: No such file or directory", str(result.exception))


def test_doctor_fits_80_columns_leads_with_what_is_wrong_and_cuts_no_command():
    from kvdrive.cli.doctor import lines

    command = "source /a/very/long/place/with/a/name/that/does/not/fit/into/eighty/columns/of/a/terminal/settings64.sh"
    found = [
        Finding("a", "fine", State.ok, "word " * 40),
        Finding("b", "absent", State.missing, "not here", "something", command),
        Finding("c", "torch", State.broken, "not installed", "models", "pip install 'kvdrive[models]'"),
    ]
    shown = list(lines(found))
    assert [line for line in shown if line.startswith("What")] == [shown[0], shown[4], shown[8]]
    assert "torch: not installed (models)" in shown[1]
    assert f"    -> {command}" in shown
    assert all(len(line) <= 80 for line in shown if command not in line)


def test_commands_that_need_no_model_import_no_torch():
    """`kernel list` and `doctor` work where the extra `models` is not installed."""
    import subprocess

    program = "import sys; sys.modules['torch'] = None; from kvdrive.cli.main import app; app(['kernel', 'list'])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
