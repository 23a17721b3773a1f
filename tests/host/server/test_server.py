"""`kvdrive serve` as a process of its own, spoken to over HTTP: answers, streams, limits, cancellation, metrics."""

import json
import re
import signal
import sys
import threading
from pathlib import Path

import forked
import httpx2 as httpx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from server_process import PROMPT, Server
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from kvdrive import abi
from kvdrive._native import Drive
from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.kvcache.session import Session
from kvdrive.targets.emulator import Emulator


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    server = Server(checkpoint, tmp_path_factory.mktemp("cache"), "--concurrency", 2, "--queue", 4)
    yield server
    server.close()


@pytest.fixture(scope="module")
def stock(checkpoint):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)

    def text(prompt, new_tokens):
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        mask = torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0)
        new = out[0, ids.shape[1] :].tolist()
        return tokenizer.decode(new, skip_special_tokens=True), ids.shape[1], len(new)

    return text


def chunks(response):
    """The documents of a stream, which ends with [DONE]."""
    lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_completion_equals_transformers(server, stock):
    answer = server.complete(prompt=PROMPT, max_tokens=20).json()
    text, prompt_tokens, new_tokens = stock(PROMPT, 20)
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"]["prompt_tokens"] == prompt_tokens
    assert answer["usage"]["completion_tokens"] == new_tokens == 20


def test_token_numbers_are_a_prompt(server, checkpoint):
    ids = AutoTokenizer.from_pretrained(checkpoint)(PROMPT)["input_ids"]
    texts = [server.complete(prompt=prompt, max_tokens=8).json()["choices"][0]["text"] for prompt in (PROMPT, ids)]
    assert texts[0] == texts[1]


def test_a_stream_has_the_same_text_and_the_counts(server, stock):
    fields = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "stream_options": {"include_usage": True}}
    request = {"model": "tiny", "stream": True, **fields}
    with server.client.stream("POST", "/v1/completions", json=request) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        found = chunks(response)
    *pieces, closing, counts = found
    assert len(pieces) > 3
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == stock(PROMPT, 20)[0]
    assert closing["choices"][0]["finish_reason"] == "length"
    assert counts["choices"] == []
    assert counts["usage"]["completion_tokens"] == 20
    assert len({chunk["id"] for chunk in found}) == 1


def test_chat_streams_deltas_and_answers_whole(server):
    messages = [
        {"role": "system", "content": "short"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
    ]
    request = {"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0}
    whole = server.client.post("/v1/chat/completions", json=request).json()
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"]["role"] == "assistant"
    with server.client.stream("POST", "/v1/chat/completions", json=request | {"stream": True}) as response:
        opening, *pieces, closing = chunks(response)
    assert opening["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(piece["choices"][0]["delta"]["content"] for piece in pieces)
    assert text == whole["choices"][0]["message"]["content"]
    assert closing["choices"][0]["delta"] == {}


def test_stop_texts_end_the_answer_before_them(server, stock):
    text = stock(PROMPT, 20)[0]
    stop = text[9:12]
    answer = server.complete(prompt=PROMPT, max_tokens=20, stop=["never this", stop]).json()
    assert answer["choices"][0]["text"] == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 20


def test_the_next_turn_finds_its_history_on_the_drive(server):
    first = server.complete(prompt=PROMPT + " turn one", max_tokens=12).json()
    history = PROMPT + " turn one" + first["choices"][0]["text"]
    before = server.metric("kvdrive_cached_prompt_tokens_total")
    second = server.complete(prompt=history, max_tokens=4).json()
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens"] - 4 < cached < second["usage"]["prompt_tokens"]
    assert server.metric("kvdrive_cached_prompt_tokens_total") - before == cached


def test_requests_at_the_same_time_get_their_own_answers(server, stock):
    prompts = [f"{word} {PROMPT}" for word in ("one", "two", "three")]
    answers = {}

    def ask(prompt):
        answers[prompt] = server.complete(prompt=prompt, max_tokens=16).json()["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {prompt: stock(prompt, 16)[0] for prompt in prompts}


def test_sampling_repeats_with_its_seed(server):
    def sampled(seed):
        return server.complete(prompt=PROMPT, max_tokens=12, temperature=1.5, seed=seed).json()["choices"][0]["text"]

    assert sampled(5) == sampled(5)
    assert sampled(5) != sampled(6)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_place(server, stream):
    before = server.metric("kvdrive_cancelled_requests_total")
    request = {"model": "tiny", "prompt": "long", "max_tokens": 4000, "stream": stream, "temperature": 0}
    if stream:
        with server.client.stream("POST", "/v1/completions", json=request) as response:
            next(response.iter_lines())
    else:
        with pytest.raises(httpx.TimeoutException):
            server.client.post("/v1/completions", json=request, timeout=0.3)
    server.wait_for("kvdrive_cancelled_requests_total", before + 1)
    server.wait_for("kvdrive_sequences_running", 0)


def test_a_full_queue_is_said_so(server):
    request = {"model": "tiny", "prompt": "long", "max_tokens": 4000, "stream": True, "temperature": 0}
    streams = [server.client.stream("POST", "/v1/completions", json=request) for _ in range(6)]
    lines = [stream.__enter__().iter_lines() for stream in streams[:2]]
    for line in lines:
        next(line)
    waiting = [threading.Thread(target=stream.__enter__) for stream in streams[2:]]
    for thread in waiting:
        thread.start()
    server.wait_for("kvdrive_requests_waiting", 4)
    refused = server.complete(prompt="x")
    for thread in waiting:
        thread.join()
    for stream in streams:
        stream.__exit__(None, None, None)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["code"] == "queue_full"
    server.wait_for("kvdrive_sequences_running", 0)


def test_the_drives_room_is_shared(checkpoint, tmp_path):
    """Room for 100 tokens: requests wait for room, idle sequences are dropped, requests that never fit are refused."""
    server = Server(checkpoint, tmp_path, "--max-tokens", 100, "--concurrency", 4)
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    answers = []

    def ask(word):
        answers.append(server.complete(prompt=word, max_tokens=60).json())

    threads = [threading.Thread(target=ask, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    seen = set()
    while any(thread.is_alive() for thread in threads):
        seen.add(server.metric("kvdrive_sequences_running"))
    assert max(seen) == 1
    assert server.metric("kvdrive_generated_tokens_total") == sum(a["usage"]["completion_tokens"] for a in answers)
    assert len(answers) == 5
    assert 1 <= server.metric("kvdrive_sequences_idle") <= 2
    assert server.complete(prompt="x", max_tokens=100).json()["error"]["code"] == "context_length_exceeded"
    assert server.client.get("/v1/models/tiny").json()["max_model_len"] == 100
    server.close()


def test_models_health_and_metrics(server):
    listed = server.client.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["tiny"]
    assert server.client.get("/v1/models/tiny").json()["max_model_len"] == 4096
    assert server.client.get("/v1/models/other").json()["error"]["code"] == "model_not_found"
    assert server.client.get("/health").json() == {"status": "ok", "model": "tiny", "waiting": 0, "running": 0}
    jobs = server.metric("kvdrive_drive_attention_jobs_total")
    server.complete(prompt="a new prompt with nothing on the drive", max_tokens=6)
    assert server.metric("kvdrive_drive_attention_jobs_total") - jobs == 5 * 2 * 2  # steps, layers, KV heads
    assert server.metric("kvdrive_drive_modelled_seconds_total") > 0
    assert server.metric('kvdrive_requests_total{path="/v1/models",status="200"}') >= 1


GOOD = {"model": "tiny", "prompt": "x", "max_tokens": 2}


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": [1, 300]}, 400, "prompt"),
        ({"prompt": [-1]}, 400, "prompt"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": ["a", [1]]}, 400, "prompt"),
        ({"max_tokens": -1}, 400, "max_tokens"),
        ({"max_tokens": 4096}, 400, "max_tokens"),
        ({"temperature": 3}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"n": 0}, 400, "n"),
        ({"logprobs": 50}, 400, "logprobs"),
        ({"stop": ["a"] * 5}, 400, "stop"),
        ({"logit_bias": {"1": 500}}, 400, "logit_bias"),
        ({"prompt": "word " * 3000}, 400, "prompt"),
    ],
)
def test_refusals_are_in_openais_format(server, change, status, param):
    response = server.client.post("/v1/completions", json=GOOD | change)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


def test_other_paths_methods_and_bodies(server):
    for method, path, body, status in (
        ("GET", "/v1/completions", b"", 405),
        ("POST", "/v1/nothing", b"{}", 404),
        ("POST", "/v1/completions", b"{", 400),
        ("POST", "/v1/completions", b"\xff\xff", 400),
        ("POST", "/v1/completions", b" " * (17 << 20), 413),
    ):
        response = server.client.request(method, path, content=body)
        assert response.status_code == status, response.text
        assert response.json()["error"]["message"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = ("prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "n", "stream_options", "messages")


@pytest.mark.parametrize("examples", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_any_body_is_answered_or_refused(server, examples):
    @settings(max_examples=examples, deadline=None)
    @given(change=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), chat=st.booleans())
    def ask(change, chat):
        messages = {"messages": [{"role": "user", "content": "x"}]}
        body = {"model": "tiny", "max_tokens": 1, **(messages if chat else {"prompt": "x"}), **change}
        if body["max_tokens"] is None or (isinstance(body["max_tokens"], int) and body["max_tokens"] > 4):
            body["max_tokens"] = 4  # valid as well, but long
        content = json.dumps(body).encode("utf-8", "surrogatepass")
        path = "/v1/chat/completions" if chat else "/v1/completions"
        response = server.client.post(path, content=content)
        assert response.status_code in (200, 400), response.text
        if response.status_code == 400:
            assert response.json()["error"]["type"] == "invalid_request_error"

    ask()
    assert server.process.poll() is None


def test_a_key_is_asked_for_and_sigterm_ends_the_process(checkpoint, tmp_path):
    server = Server(checkpoint, tmp_path, key="secret", measured=True)
    assert server.complete(prompt="x", max_tokens=1).status_code == 401
    for scheme in ("Bearer", "bearer", "BEARER"):
        server.client.headers["Authorization"] = f"{scheme} secret"
        assert server.complete(prompt="x", max_tokens=1).status_code == 200
    for header in ("secret", "Basic secret", "Bearer", "Bearer secret secret", "Bearer \u00fc"):
        server.client.headers["Authorization"] = header
        assert server.complete(prompt="x", max_tokens=1).status_code == 401
    del server.client.headers["Authorization"]
    assert server.client.get("/health").json() == {"status": "ok"}
    assert server.client.get("/metrics").status_code == 401
    server.client.headers["Authorization"] = "Bearer secret"
    assert server.metric('kvdrive_requests_total{path="/metrics",status="401"}') == 1
    assert server.close() in (0, -signal.SIGTERM)
    left = [path.name for path in (tmp_path / "kvdrive").iterdir()]
    assert left == ["rates.json"]  # what was measured; the drive was closed and its folder is gone


def test_a_drive_of_earlier_runs_is_mounted_and_held_alone(checkpoint, tmp_path):
    """The server reports unused sessions at the start. A second server gets an error that the drive is in use."""
    with Emulator(tmp_path / "drive.kv", "fast") as drive:  # as a killed server leaves it
        for _ in range(2):
            Session(drive).append(0, abi.KvKind.KEYS, 0, np.ones((1, 64, 64), np.float16))
    server = Server(checkpoint, tmp_path, "--drive", tmp_path, "--open-metrics", key="secret")
    assert "drive.kv holds 2 sessions" in server.said()
    assert server.client.get("/metrics").status_code == 200
    assert server.client.get("/v1/models").status_code == 401
    command = [sys.executable, "-m", "kvdrive", "serve", "--model", str(checkpoint), "--port", "0"]
    second = forked.run([*command, "--drive", str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert second.returncode == 2
    (sentence,) = (line for line in second.stderr.splitlines() if line)
    assert str(tmp_path / "drive.kv") in sentence
    assert "another drive has it open" in sentence
    assert server.end(signal.SIGINT) == 130
    kept = "hold what they held before, and the sequences that the server kept"
    assert server.said().endswith(f"kvdrive: stopped: the drives in {tmp_path} {kept}\n")
    assert "Traceback" not in server.said()
    assert len(Drive(tmp_path / "drive.kv", "fast", read_only=True).sessions()) == 2


_LARGE = 8 << 20


def resident_bytes(process):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) << 10


def test_prompts_far_too_long_are_refused_without_tokenizing_them(server):
    """Six of them at once. The server still answers other requests, and frees the memory afterwards."""
    server.complete(prompt="x", max_tokens=1)
    before = resident_bytes(server.process)
    answers = []
    prompt = "a b c " * (_LARGE // 6)

    def ask():
        answers.append(server.complete(prompt=prompt, max_tokens=1))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert server.client.get("/health").status_code == 200
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} <= {400, 413, 429}
    assert {answer.json()["error"]["code"] for answer in answers} & {"context_length_exceeded", "body_too_large"}
    assert server.complete(prompt="x", max_tokens=1).status_code == 200
    assert resident_bytes(server.process) - before < _LARGE


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--host", "0.0.0.0"], "set KVDRIVE_API_KEY"), (["--model", "nowhere"], "no checkpoint in 'nowhere'")],
)
def test_what_cannot_be_served_is_one_sentence(options, message):
    refused = CliRunner().invoke(app, ["serve", *options]).exception
    assert isinstance(refused, InputError)
    assert message in str(refused)
    assert "\n" not in str(refused)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "https://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "rebound.example.org"}, 403),
        ({"Host": "[::1]:8000"}, 200),
    ],
)
def test_without_a_key_other_pages_get_nothing(server, headers, status):
    """A page from elsewhere may neither use the browser of this machine nor a name that points to it."""
    for path in ("/v1/models", "/metrics", "/v1/stats"):
        assert server.client.get(path, headers=headers).status_code == status
