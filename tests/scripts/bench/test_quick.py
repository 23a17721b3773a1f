"""`make bench SUITE=x QUICK=1`: each benchmark runs and fills blocks that pages show."""

import pytest

from bench import cli, results
from bench.setup import Setup
from bench.suites import SUITES, runner
from pages import measured

FAST = {
    ("attention", "formats"),
    ("attention", "rows"),
    ("sessions", "turns"),
    ("storage", "values"),
    ("weights", "window"),
}
# Of kvdrive eval one is enough; the others need what is not part of the set-up, or have tests of their own.
LEFT_OUT = {("sessions", "vllm"), ("llama", "plugin"), ("hardware", "cycles"), ("gpu", "check")}
LEFT_OUT |= {("quality", name) for name in SUITES["quality"] if name.startswith("evaluated/")}
LEFT_OUT -= {("quality", "evaluated/limits")}
ALL = [(suite, name) for suite, names in SUITES.items() for name in names if (suite, name) not in LEFT_OUT]
SHOWN_BY_THEIR_COMMAND = {
    "attention/rows",
    "server/agent",
    "server/layers",
    "server/peers",
    "sessions/drafts",
    "weights/stream",
    "weights/window",
}


@pytest.mark.parametrize(
    ("suite", "name"), [pytest.param(*one, marks=[] if one in FAST else pytest.mark.slow) for one in ALL]
)
def test_a_quick_run_fills_blocks_that_pages_show(suite, name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    blocks = runner(suite, name)(Setup(quick=True, threads=1))
    assert blocks
    shown = {place for _, place, _ in measured.places()} | SHOWN_BY_THEIR_COMMAND
    assert {f"{suite}/{block.name}" for block in blocks} <= shown
    assert all(table.rows or table.note for block in blocks for table in block.tables)


def test_every_block_of_a_page_comes_from_a_suite():
    assert {place.partition("/")[0] for _, place, _ in measured.places()} <= set(SUITES)


def test_without_a_suite_all_are_listed(capsys):
    assert cli.main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name}" in listed for names in SUITES.values() for name in names)


def test_an_unknown_benchmark_is_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        cli.main(["decode", "--only", "step"])
    assert "decode has steps, matrices, mini_batches, plan, not step" in capsys.readouterr().err


def test_a_quick_run_keeps_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cli.main(["weights", "--only", "window", "--quick", "--threads", "1"]) == 0
    assert "weights/window\n\nManaging the window takes" in capsys.readouterr().out
    assert list(tmp_path.glob("*/*.json")) == []
