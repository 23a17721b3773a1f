"""`kvdrive doctor`: every finding is true on this machine, and broken parts are errors."""

import errno
import json
import os
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvdrive import _native
from kvdrive.cli.main import app
from kvdrive.doctor import machine, storage
from kvdrive.prefix.rates import Rates
from kvdrive.prefix.resume import Costs

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def found():
    result = RUNNER.invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    return {finding["name"]: finding for finding in json.loads(result.output)}


def test_findings_are_true(found):
    assert found["torch"]["detail"] == version("torch")
    assert _native.Engine("fast").isa in found["processor"]["detail"]
    assert found["engines"]["state"] == "ok"
    assert set(found["presets"]["detail"].split(", ")) == set(_native.presets())
    assert (found["Yosys"]["state"] == "ok") == (shutil.which("yosys") is not None)
    assert (found["KVM"]["state"] == "ok") == os.access("/dev/kvm", os.R_OK | os.W_OK)
    assert (found["NVMe devices"]["state"] == "ok") == any(Path("/dev").glob("nvme*n*"))


def test_whatever_is_missing_has_a_remedy(found):
    assert {finding["state"] for finding in found.values()} <= {"ok", "missing", "broken"}
    assert all(finding["remedy"] and finding["gives"] for finding in found.values() if finding["state"] != "ok")
    assert {finding["group"] for finding in found.values()} >= {
        "machine",
        "packages",
        "drive",
        "storage",
        "RTL",
        "boards",
    }


def test_measured_rates_are_shown(tmp_path, monkeypatch):
    """Those beside a drive, or those of drives in the user's cache; a file that holds something else has none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "drive.kv").touch()

    def shown(*options):
        found = json.loads(RUNNER.invoke(app, ["doctor", "--json", *options]).output)
        return [one for one in found if one["group"] == "sessions"]

    for options in ((), ("--drive", str(tmp_path))):
        (missing,) = shown(*options)
        assert missing["state"] == "missing"
        assert "kvdrive serve" in missing["remedy"]
    rates = Rates(1e-3, 2e-6, 1e-2, 1e-6, 5e-10, 0, 3e-3, 4e-3, 5e-6)
    for folder in (tmp_path, tmp_path / "cache/kvdrive"):
        Costs(folder / "drive.kv.costs", "abcd/2/1", lambda: rates).measure()
    (tmp_path / "cache/kvdrive/other.costs").write_text("[]")
    for options in ((), ("--drive", str(tmp_path))):
        (one,) = shown(*options)
        assert one["name"] == "resume rates of model abcd"
        for part in (
            "load 2 GB/s",
            "attend 4 ms a token + 5 us a pair",
            "recompute 1 ms a token + 2 us a pair",
            "3 ms",
        ):
            assert part in one["detail"]


def test_the_table_shows_every_check(found):
    result = RUNNER.invoke(app, ["doctor"], env={"COLUMNS": "300"})
    assert all(name in result.output for name in found)


def test_missing_programs_are_seen(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = RUNNER.invoke(app, ["doctor", "--json"])
    states = {finding["name"]: finding["state"] for finding in json.loads(result.output)}
    assert result.exit_code == 0
    assert states["Yosys"] == states["clang"] == states["XRT"] == "missing"


def test_an_engine_with_other_bits_is_broken(monkeypatch):
    def compare(*arguments):
        return [replace(row, identical=row.engine == "hls") for row in right(*arguments)]

    right = machine.compare
    monkeypatch.setattr(machine, "compare", compare)
    broken = next(machine.engines())
    assert broken.state == "broken"
    assert broken.detail == "other bits on fast"


def test_direct_io_is_tried(tmp_path, monkeypatch):
    assert storage.direct_io(tmp_path) in (None, "Invalid argument")
    assert not list(tmp_path.iterdir())

    def refuse(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "pwritev", refuse)
    assert storage.direct_io(tmp_path) == "Invalid argument"
