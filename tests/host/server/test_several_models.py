"""`kvdrive serve` of several models: each in a process of its own, loaded when a request names it."""

import os
import re
import shutil
import signal
import time
from pathlib import Path

import openai
import pytest
from server_process import PROMPT, Server
from small_models import CONFIGS, random_model
from transformers import AutoTokenizer

from kvdrive.cli.main import main
from kvdrive.errors import InputError
from kvdrive.generation.offered import home_of, offered

PATIENCE = 300  # seconds for the start of a model's process, on a busy machine
PROMPTS = {name: f"{name}: {PROMPT}, over and over, until there are more than 64 tokens of it. " * 2 for name in "ab"}


@pytest.fixture(scope="module")
def models(checkpoint, tmp_path_factory):
    """A folder with two models of other shapes, and one whose weights are missing."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(checkpoint, folder / "a")
    random_model(CONFIGS["qwen3"]).save_pretrained(folder / "b")
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(folder / "b")
    (folder / "broken").mkdir()
    shutil.copy(folder / "b" / "config.json", folder / "broken")
    (folder / "notes").mkdir()
    return folder


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    """Memory for one of the two models."""
    folder = tmp_path_factory.mktemp("several")
    options = ["--drive", folder / "drives", "--models-memory", "6M", "--max-tokens", 2048, "--concurrency", 2]
    server = Server(models, folder, *options, name="")
    server.folder = folder
    server.client.timeout = PATIENCE
    yield server
    server.close()


def complete(server, name, **fields):
    wish = {"model": name, "prompt": PROMPTS.get(name, PROMPT), "max_tokens": 4, "temperature": 0, **fields}
    return server.client.post("/v1/completions", json=wish)


def official(server):
    """OpenAI's client."""
    url = f"{server.client.base_url}/v1"
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE)


def states(server):
    return {one["id"]: one["status"]["value"] for one in server.client.get("/v1/models").json()["data"]}


def test_each_is_loaded_when_it_is_named_and_finds_its_sessions_again(server):
    client = official(server)
    assert [one.id for one in client.models.list()] == ["a", "b", "broken"]
    texts = {}
    for name in "ab":
        first = complete(server, name, prompt=f"Once again, {PROMPTS[name]}")
        assert first.status_code == 200, first.text
        assert first.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        texts[name] = first.json()["choices"][0]["text"]
        others = {"a": "b", "b": "a"}
        assert states(server) == {name: "loaded", others[name]: "unloaded", "broken": "unloaded"}
    again = complete(server, "a", prompt=f"Once again, {PROMPTS['a']}").json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1
    assert again["choices"][0]["text"] == texts["a"]
    assert {one.name for one in (server.folder / "drives").iterdir()} >= {"a", "b"}
    client.close()


def test_streams_and_other_paths_go_to_the_model_that_is_named(server):
    with openai.OpenAI(
        base_url=f"{server.client.base_url}/v1", api_key="none", max_retries=0, timeout=PATIENCE
    ) as client:
        chunks = list(
            client.completions.create(model="a", prompt=PROMPTS["a"], max_tokens=4, temperature=0, stream=True)
        )
    assert "".join(one.choices[0].text for one in chunks) == complete(server, "a").json()["choices"][0]["text"]
    asked = server.client.post("/tokenize", json={"model": "a", "content": PROMPT})
    assert asked.json()["tokens"]
    assert server.client.get("/props", params={"model": "a"}).json()["model_alias"] == "a"
    listed = server.client.get("/v1/sessions").json()["data"]
    assert listed
    assert {one["model"] for one in listed} == {"a"}
    assert server.client.get("/v1/stats", params={"model": "a"}).json()["prompt_tokens"] > 0
    assert server.client.get("/v1/stats", params={"model": "b"}).json()["prompt_tokens"] == 0
    assert server.client.get("/v1/stats").json()["generated_tokens"] > 0
    assert server.client.get("/health").json()["models"] == ["a"]


def test_metrics_have_the_model_as_a_label(server):
    complete(server, "a")
    lines = server.client.get("/metrics").text.splitlines()
    assert any(re.fullmatch(r'kvdrive_generated_tokens_total\{model="a"\} [1-9].*', line) for line in lines)
    assert 'kvdrive_model_loaded{model="a"} 1.0' in lines
    assert 'kvdrive_model_loaded{model="b"} 0.0' in lines
    assert sum(line.startswith("# TYPE kvdrive_requests_total ") for line in lines) == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "c", "prompt": "x"}, 404, "model_not_found"),
        ({"prompt": "x"}, 400, "missing_required_parameter"),
        ({"model": 1, "prompt": "x"}, 400, "invalid_value"),
        ({"model": "broken", "prompt": "x"}, 503, "model_unavailable"),
        ({"model": "a", "prompt": "x", "wishes": 1}, 400, "unknown_parameter"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(server, body, status, code):
    answer = server.client.post("/v1/completions", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert server.client.get("/health").status_code == 200


def test_a_path_without_a_body_needs_the_model(server):
    for path in ("/props", "/v1/sessions/x"):
        answer = server.client.request("DELETE" if "sessions" in path else "GET", path)
        assert answer.json()["error"]["code"] == "missing_required_parameter"
    gone = server.client.get("/v1/responses/resp_1")
    assert gone.json()["error"]["code"] == "response_not_found"


def test_a_request_waits_for_a_model_until_its_own_deadline(server):
    complete(server, "a")
    late = complete(server, "b", deadline_seconds=0.001)
    assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_passed")
    assert complete(server, "a").status_code == 200


def test_the_page_s_answers_are_found_with_their_model(server):
    said = [{"role": "user", "content": "Hello"}]
    begun = server.client.post("/v1/answers/answer-1", json={"model": "a", "messages": said, "max_tokens": 3})
    assert begun.status_code == 200, begun.text
    with server.client.stream("GET", "/v1/answers/answer-1") as events:
        assert '"end":"length"' in events.read().decode()
    assert server.client.delete("/v1/answers/answer-1").json()["deleted"]
    assert server.client.get("/v1/answers/answer-1").json()["error"]["code"] == "answer_not_found"


def children(process):
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(one) for one in found if b"router.worker" in Path(f"/proc/{one}/cmdline").read_bytes()]


def test_a_model_whose_process_dies_is_started_again(server):
    complete(server, "a")
    (child,) = children(server.process)
    os.kill(child, signal.SIGKILL)
    while Path(f"/proc/{child}").exists():
        time.sleep(0.01)
    assert complete(server, "a").status_code == 200
    assert children(server.process) != [child]


def test_processes_of_models_end_with_the_server(models, tmp_path):
    """Even if it is killed. A server with a key asks for it before it loads a model."""
    server = Server(models / "a", tmp_path, "--model", models / "b", "--model-idle", 3600, key="secret", name="")
    server.client.timeout = PATIENCE
    assert complete(server, "a").status_code == 401
    assert not children(server.process)
    headers = {"Authorization": "Bearer secret"}
    wish = {"model": "a", "prompt": "x", "max_tokens": 1}
    assert server.client.post("/v1/completions", json=wish, headers=headers).status_code == 200
    (child,) = children(server.process)
    server.end(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_idle_model_is_unloaded_and_loaded_again(models, tmp_path):
    """A single one as well; without a folder for drives, its sessions stay as long as the server."""
    server = Server(models / "a", tmp_path, "--model-idle", 0.2, name="")
    server.client.timeout = PATIENCE
    assert complete(server, "a").status_code == 200
    deadline = time.monotonic() + 60
    while states(server) != {"a": "unloaded"} or children(server.process):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    usage = complete(server, "a").json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
    server.close()


def test_names_are_those_of_folders_and_files(models, tmp_path):
    assert [one.name for one in offered([str(models)])] == ["a", "b", "broken"]
    assert [one.name for one in offered(["mini", str(models / "a")])] == ["mini", "a"]
    for name in ("x-00001-of-00002.gguf", "x-00002-of-00002.gguf", "y.gguf", "z.txt"):
        (tmp_path / name).touch()
    assert [one.name for one in offered([str(tmp_path)])] == ["x-00001-of-00002.gguf", "y.gguf"]
    with pytest.raises(InputError, match="two models are called 'a'"):
        offered([str(models / "a"), str(models / "a")])
    with pytest.raises(InputError, match="there is no model"):
        offered([str(models / "a"), str(models / "missing")])


def test_a_server_of_one_model_finds_what_one_of_several_has_stored(tmp_path):
    assert home_of(tmp_path, "a") == tmp_path
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "drive.kv").touch()
    assert home_of(tmp_path, "a") == tmp_path / "a"
    assert home_of(tmp_path, "b") == tmp_path
    assert home_of(None, "a") is None


def test_one_name_for_several_models_is_refused(models, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kvdrive", "serve", "--model", str(models), "--name", "x"])
    with pytest.raises(SystemExit):
        main()
    assert "--name is for one model" in capsys.readouterr().err
