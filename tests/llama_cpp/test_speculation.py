"""Prompt lookup in a server that llama.cpp computes: the answers are those without, in fewer calls."""

import json
from functools import partial

import pytest
from served import Servers
from session_scenarios import survives_a_kill
from test_generate import PROMPT, models  # noqa: F401 (a fixture)
from test_serve_sessions import said_by, serve  # noqa: F401 (a fixture)
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError

REPEATS = "def append(self, value):\n    self.values.append(value)\n\n\n" * 4
SCHEMA = {
    "type": "object",
    "properties": {"disks": {"type": "array", "items": {"enum": ["flash disk", "hard disk"]}, "minItems": 3}},
    "required": ["disks"],
    "additionalProperties": False,
}
ASKED = {
    "greedy": {"prompt": REPEATS, "max_tokens": 60},
    "other text": {"prompt": PROMPT, "max_tokens": 40},
    "several": {"prompt": [REPEATS, PROMPT, "x = [" + "1, " * 40], "max_tokens": 40},
    "sampled": {"prompt": REPEATS, "max_tokens": 40, "temperature": 0.8, "seed": 5, "n": 2},
    "schema": {
        "messages": [{"role": "user", "content": REPEATS}],
        "max_tokens": 80,
        "temperature": 1.2,
        "seed": 3,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
    },
}


def said(server, fields):
    path = "chat/completions" if "messages" in fields else "completions"
    answer = server.client.post(f"/v1/{path}", json={"model": "tiny", "temperature": 0} | fields)
    assert answer.status_code == 200, answer.text
    found = json.loads(answer.text)
    return [(one.get("text") or one.get("message"), one["finish_reason"]) for one in found["choices"]], found["usage"]


def test_answers_are_those_without_drafts(models, tmp_path):  # noqa: F811
    found, counted = [], []
    for name, options in (("alone", ()), ("drafts", ("--lookup", 2))):
        (tmp_path / name).mkdir()
        servers = Servers(tmp_path / name)
        server = servers.start(models(), "--context", 2048, *options)
        found.append({what: said(server, fields) for what, fields in ASKED.items()})
        names = ("drafted_tokens_total", "accepted_tokens_total", "batch_size_sum", "repeated_steps_total")
        counted.append([server.metric(f"kvdrive_{one}") for one in names])
        found[-1]["stop"] = said(server, {"prompt": REPEATS, "max_tokens": 40, "stop": ["append"]})
        servers.kill()
    assert found[0] == found[1]
    (none, zero, steps, _), (drafted, accepted, fewer, repeated) = counted
    assert (none, zero, repeated) == (0, 0, 0)
    assert drafted > accepted > 0
    assert fewer == steps - accepted


def test_a_conversation_with_drafts_survives_kill_9(serve, models):  # noqa: F811
    survives_a_kill(partial(serve, "--lookup", 2), partial(said_by, models()))


def test_a_cache_with_windows_takes_drafted_tokens_back(built, tmp_path):
    """With a penalty the random model leaves each of its loops, so that many drafts are wrong."""
    from random_gguf import write_gemma

    write_gemma(tmp_path / "windows.gguf", "gemma3", texts=True)
    asked = {"prompt": "import os\n" * 60, "max_tokens": 60, "frequency_penalty": 2.0, "temperature": 0.8, "seed": 5}
    found, counted = [], []
    for name, options in (("alone", ()), ("drafts", ("--lookup", 1))):
        (tmp_path / name).mkdir()
        servers = Servers(tmp_path / name)
        server = servers.start(tmp_path / "windows.gguf", "--context", 1024, *options)
        found.append(said(server, asked))
        counted.append([server.metric(f"kvdrive_{one}_tokens_total") for one in ("drafted", "accepted")])
        servers.kill()
    assert found[0] == found[1]
    assert counted[0] == [0, 0]
    assert counted[1][0] > counted[1][1] > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--assistant", "mini"), "llama.cpp does not serve --assistant mini"),
        (("--lookup", "3", "--attention", "groups", "--ratio", "1/8"), "--lookup does not go with --attention groups"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(models, monkeypatch, options, sentence):  # noqa: F811
    from served import PLACES

    for name, value in PLACES.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["serve", "-m", str(models()), "--port", "0", *options])
    assert isinstance(done.exception, InputError), done.output
    assert sentence in str(done.exception)
