"""What one decode step of a sequence asks of a drive in this process: one native call for each layer."""

import json

import pytest
import uvicorn
from starlette.testclient import TestClient
from typer.testing import CliRunner

from kvdrive import abi
from kvdrive.cli.main import app
from kvdrive.report import trace
from kvdrive.targets import rings

LAYERS, NEW = 2, 7
ATTENTION = {abi.Opcode.ATTN_SUBMIT, abi.Opcode.ATTN_FETCH, abi.Opcode.ATTN_SUBMIT_ROWS}
TEXT = "The drive keeps the keys and the values of every token, and the host"


@pytest.fixture
def calls(monkeypatch):
    """Sizes of the results that are asked for in one call, and attention commands that are sent by other calls."""
    asked, others = [], []
    ask, exchange = rings.ask, rings.exchange

    def counted_ask(pairs, query, size):
        asked.append(size)
        return ask(pairs, query, size)

    def counted_exchange(pairs, commands, *queue):
        others.extend(one.opcode for one in commands if one.opcode in ATTENTION)
        return exchange(pairs, commands, *queue)

    monkeypatch.setattr(rings, "ask", counted_ask)
    monkeypatch.setattr(rings, "exchange", counted_exchange)
    return asked, others


@pytest.fixture
def command(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(name, *arguments):
        given = [name, *arguments, "--model", checkpoint, "--threads", 1]
        done = CliRunner().invoke(app, list(map(str, given)))
        assert done.exit_code == 0, done.output

    return call


def test_generate_asks_once_for_each_layer_and_step(command, calls, tmp_path):
    report = ("--report", tmp_path / "out")
    command("generate", "--prompt", TEXT, "--max-new-tokens", NEW, "--ignore-stop", *report)
    asked, others = calls
    assert (len(asked), others) == ((NEW - 1) * LAYERS, [])
    counted = json.loads((tmp_path / "out/report.json").read_text())["counted"]["decode"]
    assert counted["commands"] == 2 * (NEW - 1) * LAYERS  # the drive counts ATTN_SUBMIT and ATTN_FETCH
    events = json.loads((tmp_path / "out/trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["pid"] == trace.HOST and event["name"].startswith("ATTN_")]
    assert [event["name"] for event in spans] == ["ATTN_SUBMIT"] * len(asked)


def test_run_asks_once_for_each_layer_and_step(command, calls, tmp_path, monkeypatch):
    monkeypatch.setattr("kvdrive.cli.run._VERIFY_STEPS", 0)  # it repeats steps by jobs of their own
    command("run", "--prompt-tokens", 200, "--max-new-tokens", NEW, "--report", tmp_path / "out")
    asked, others = calls
    tokens = json.loads((tmp_path / "out/report.json").read_text())["tokens"][0]
    assert (len(asked), others) == ((len(tokens) - 1) * LAYERS, [])


def test_batch_asks_once_for_each_layer_and_step(command, calls, tmp_path):
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts.write_text(f'{{"prompt": "{TEXT}"}}\n{{"prompt": "All keys"}}\n')
    command("batch", prompts, "--out", out, "--max-new-tokens", NEW)
    asked, others = calls
    steps = sum(json.loads(line)["new_tokens"] - 1 for line in out.read_text().splitlines())
    assert (len(asked), others) == (steps * LAYERS, [])
    assert steps > NEW


def test_serve_asks_once_for_each_layer_and_step(command, calls, tmp_path, monkeypatch):
    answers = []

    def run(server, sockets):
        [listening] = sockets
        listening.close()
        with TestClient(server.config.app, "http://127.0.0.1") as client:
            for prompt in ("All keys", TEXT):
                calls[0].clear()  # before the first answer, the server measures its drive
                fields = {"model": "m", "prompt": prompt, "max_tokens": NEW, "temperature": 0}
                answers.append(client.post("/v1/completions", json=fields).json())

    monkeypatch.setattr(uvicorn.Server, "run", run)
    command("serve", "--drive", tmp_path / "drives", "--port", 0, "--name", "m")
    asked, others = calls
    tokens = answers[1]["usage"]["completion_tokens"]
    assert (len(asked), others) == ((tokens - 1) * LAYERS, [])
    assert tokens > 2
