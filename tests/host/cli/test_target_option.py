"""`--target cpu`: the same text, real reads in the report, and one sentence for what it does not have."""

import json

import pytest
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError

RUNNER = CliRunner()


def test_generate_on_this_machines_disk(checkpoint, tmp_path):
    options = ["--threads", "1", "--prompt", "The drive keeps the keys", "--max-new-tokens", "12", "--ignore-stop"]
    arguments = ["--target", "cpu", "--check", "--json", "--drive", str(tmp_path)]
    result = RUNNER.invoke(app, ["generate", "--model", str(checkpoint), *options, *arguments])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["check"]["identical"] == 12
    assert report["options"]["target"] == "cpu"
    assert report["modelled"]["device_ns_per_token"] is None
    assert "file_bytes_read" in report["counted"]["decode"]


@pytest.mark.parametrize("command", ["generate --prompt a", "run", "serve --port 0", "eval"])
def test_options_of_the_other_target_are_refused(command):
    for options in ("--target cpu --preset zn540", "--cache 1G"):
        result = RUNNER.invoke(app, f"{command} {options} --model mini".split())
        assert isinstance(result.exception, InputError)
        assert "cpu target" in str(result.exception)
