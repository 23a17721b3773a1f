"""`kvdrive drive kv` on a drive's file."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from kvdrive._native import Drive
from kvdrive.cli.main import app


@pytest.fixture
def kv(tmp_path):
    path = tmp_path / "drive.kv"
    Drive(path, "fast", 1, 1 << 24)

    def run(command, *arguments, **options):
        return CliRunner().invoke(app, ["drive", "kv", command, str(path), *map(str, arguments)], **options)

    return run


def test_values_go_in_and_out(kv, tmp_path):
    value = np.random.default_rng(0).bytes(200_000)
    (tmp_path / "in").write_bytes(value)
    assert kv("put", "from file", tmp_path / "in").exit_code == 0
    assert kv("put", "hex:00ff", input=b"from standard input").exit_code == 0
    assert kv("get", "from file", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out").read_bytes() == value
    assert kv("get", "hex:00ff", "--offset", 5).stdout_bytes == b"standard input"
    assert kv("list").stdout.split("\n") == ["hex:00ff", "from file", ""]
    assert kv("list", "--sizes", "--start", "from").stdout.strip() == "200,000  from file"
    assert [kv("exists", key).exit_code for key in ("from file", "from")] == [0, 1]
    assert kv("delete", "from file").exit_code == 0
    assert kv("list").stdout == "hex:00ff\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("get", "gone"), "the key does not exist"),
        (("put", "there", "--new"), "the key exists already"),
        (("put", "gone", "--replace"), "the key does not exist"),
        (("put", "there", "--new", "--replace"), "exclude each other"),
        (("put", "x" * 17), "a key has 1 to 16 bytes"),
        (("get", "hex:0"), "write pairs of hexadecimal digits"),
        (("put", "there", "/no/such/file"), "cannot read"),
    ],
)
def test_what_is_refused_is_said(kv, arguments, message):
    assert kv("put", "there", input=b"1").exit_code == 0
    done = kv(*arguments, input=b"2")
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert kv("get", "there").stdout_bytes == b"1"


def test_a_drive_that_is_not_there(tmp_path):
    done = CliRunner().invoke(app, ["drive", "kv", "list", str(tmp_path / "none.kv")])
    assert "there is no drive" in str(done.exception)
    assert not (tmp_path / "none.kv").exists()
