"""Speculative decoding with neurons on flash: the window remembers what accepted tokens used."""

import json

import pytest
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.weights.acceptance import Acceptance


@pytest.fixture
def run(dense, tmp_path, monkeypatch):
    """`kvdrive generate` with the neurons of mini_relu on flash."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    flash = ["--weights", "flash", "--weights-file", dense("mini_relu")[1], "--weights-memory", "70%"]
    given = ["--model", "mini_relu", "--prompt", "def main(argv):", "--max-new-tokens", 20, "--ignore-stop", "--json"]

    def call(*options):
        return CliRunner().invoke(app, ["generate", *map(str, [*given, *flash, "--threads", 1, *options])])

    return call


@pytest.fixture
def report(run):
    def call(*options):
        done = run("--weights-window", 1, *options)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return call


def test_neurons_of_accepted_tokens_are_read_once(report):
    alone = report()
    itself = report("--assistant", "mini_relu")
    other = report("--assistant", "mini")
    assert alone["tokens"] == itself["tokens"] == other["tokens"]
    assert itself["assistant"]["window_share"] == 1
    assert itself["weights"]["bytes_per_token"] < alone["weights"]["bytes_per_token"]
    assert 0 < other["assistant"]["window_share"] < 1
    fixed = report("--assistant", "mini", "--accepted", 0.25)
    assert fixed["tokens"] == alone["tokens"]
    assert fixed["assistant"]["window_share"] == 0.25


def test_the_share_is_a_running_mean_or_stays():
    measured, given = Acceptance.of("auto"), Acceptance.of(0.4)
    assert [measured.accepted(tokens) for tokens in (1, 5)] == [1, 5]
    for one in (measured, given):
        one.add(3, 5)
    assert measured.share == 3 / 5
    assert [measured.accepted(tokens) for tokens in (5, 6, 10)] == [3, 4, 6]
    assert [given.accepted(tokens) for tokens in (5, 6)] == [2, 3]
    for _ in range(400):
        measured.add(1, 4)
    assert measured.share == pytest.approx(1 / 4)


def test_a_share_that_is_none_is_refused(run):
    for share in ("0", "1.5", "half"):
        done = run("--assistant", "mini", "--accepted", share)
        assert "is no share: give a number" in str(done.exception)
    assert "--accepted goes with --assistant" in str(run("--accepted", "0.5").exception)
