"""`kvdrive serve` with llama.cpp: answers are those of `kvdrive generate`, the server's own layer works over it."""

import json

import numpy as np
import pytest
from agent_requests import TEMPLATE, WEATHER
from served import PLACES, Servers
from test_generate import END, PROMPT, SAMPLED, generated, models, run, stock_logits  # noqa: F401
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError

PROMPTS = [PROMPT, "class Drive:\n", "import os\nimport sys\n\n\ndef main():\n    ", "x = [" + "1, " * 300]
CHAT = [{"role": "user", "content": "def append(self, value):"}]
CHAT_TEXT = "user:def append(self, value):\nassistant:"


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):  # noqa: F811
    servers = Servers(tmp_path_factory.mktemp("served"))
    yield servers.start(models(), "--context", 2048)
    servers.kill()


@pytest.fixture
def start(built, tmp_path):
    """A function that starts another server of a model."""
    servers = Servers(tmp_path)
    yield servers.start
    servers.kill()


@pytest.fixture(scope="module")
def client(server, openai):
    with openai.OpenAI(base_url=f"{server.client.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_chat_says_what_generate_says(server, client, models):  # noqa: F811
    answer = client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=24, temperature=0)
    wanted = generated(models(), "-n", 24, prompts=[CHAT_TEXT])
    assert answer.choices[0].message.content == wanted["text"][0]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (wanted["prompts"][0], 24)
    assert answer.choices[0].finish_reason == "length"
    pieces = client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=24, temperature=0, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in pieces) == wanted["text"][0]
    assert "llama.cpp 0.5" in server.said()


def test_prompts_at_the_same_time_say_what_each_says_alone(server, client, models):  # noqa: F811
    """One of them is computed in parts beside the others' steps; later ones begin while others run."""
    texts = [generated(models(), "-n", 40, prompts=[prompt])["text"][0] for prompt in PROMPTS]
    steps = server.metric("kvdrive_batch_size_count")
    answer = client.completions.create(model="tiny", prompt=[*PROMPTS, *PROMPTS[:2]], max_tokens=40, temperature=0)
    assert [one.text for one in answer.choices] == [*texts, *texts[:2]]
    assert server.metric("kvdrive_batch_size_count") - steps < 2 * 40 + 10
    assert server.metric("kvdrive_repeated_steps_total") == 0


def test_sampled_tokens_are_those_of_generate(client, models):  # noqa: F811
    answer = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=24, temperature=0.8, top_p=0.9, seed=5, extra_body={"top_k": 40}
    )
    assert answer.choices[0].text == generated(models(), "-n", 24, *SAMPLED)["text"][0]


def test_a_text_ends_at_its_end_and_at_stop_texts(start, client, models):  # noqa: F811
    found = generated(models(), "-n", 12)
    text, tokens = found["text"][0], found["tokens"][0]
    stop = text[4:7]
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=12, temperature=0, stop=stop)
    assert answer.choices[0].text == text[: text.index(stop)]
    end = next(token for token in tokens[2:] if token not in tokens[:2])
    with_end = start(models(end), "--idle", 0)
    answer = with_end.complete(prompt=PROMPT, max_tokens=12).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == tokens.index(end) + 1
    assert with_end.client.get("/v1/sessions").status_code == 501


def test_chances_are_those_of_stock_llama_cpp(client, host, models, tmp_path):  # noqa: F811
    [new] = generated(models(), "-n", 8)["tokens"]
    prompt, logits = stock_logits(host, models(), tmp_path, new)
    chances = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    wanted = chances[np.arange(len(new)), new].tolist()
    options = {"model": "tiny", "temperature": 0, "logprobs": 2}
    answer = client.completions.create(prompt=PROMPT, max_tokens=8, **options).choices[0].logprobs
    assert answer.token_logprobs == pytest.approx(wanted, abs=0.02)
    assert all(max(top.values()) == own for top, own in zip(answer.top_logprobs, answer.token_logprobs, strict=True))
    again = client.completions.create(prompt=[*prompt, *new], max_tokens=0, echo=True, **options).choices[0].logprobs
    assert again.token_logprobs[0] is None
    assert again.token_logprobs[len(prompt) :] == pytest.approx(wanted, abs=0.02)


def test_an_answer_keeps_to_its_schema(client):
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["flash", "disk"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["name", "count"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "drive", "schema": schema, "strict": True}}
    answer = client.chat.completions.create(
        model="tiny", messages=CHAT, max_tokens=64, temperature=1.5, seed=3, response_format=form
    )
    found = json.loads(answer.choices[0].message.content)
    assert (found["name"] in ("flash", "disk"), found["count"] in range(1, 10)) == (True, True)
    assert answer.choices[0].finish_reason == "stop"


def test_a_model_with_tools_must_call_one(start, openai, tmp_path):
    import mini_gguf

    mini_gguf.write(tmp_path / "tools.gguf", END, TEMPLATE)
    server = start(tmp_path / "tools.gguf")
    with openai.OpenAI(base_url=f"{server.client.base_url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="tiny", messages=CHAT, max_tokens=64, tools=[WEATHER], tool_choice="required", seed=1
        )
    [call] = answer.choices[0].message.tool_calls
    found = json.loads(call.function.arguments)
    assert (call.function.name, found["city"] in ("Oslo", "Rome")) == ("weather", True)


def test_a_model_with_two_caches_goes_on_where_it_is(start, tmp_path):
    """Its windows are kept on no drive: the next turn finds its history while the server runs."""
    from random_gguf import write_gemma

    write_gemma(tmp_path / "windows.gguf", "gemma3", texts=True)
    server = start(tmp_path / "windows.gguf", "--context", 1024)
    begin = "import os\n" * 60
    first = server.complete(prompt=begin, max_tokens=0).json()["usage"]
    for end, cached in (("def main():\n", first["prompt_tokens"]), ("class Drive:\n", 0)):  # a window does not go back
        answer = server.complete(prompt=begin + end, max_tokens=8).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert (
            answer["choices"][0]["text"]
            == generated(tmp_path / "windows.gguf", "-n", 8, prompts=[begin + end])["text"][0]
        )
    assert "sessions do not survive the server" in server.said()
    assert server.metric("kvdrive_sequences_idle") == 2


def test_choices_share_their_prompt(server, client):
    """It is computed once: the others find it on the drive."""
    before = server.metric("kvdrive_sessions_hits_total")
    options = {"prompt": "while shared(" + "a, " * 40, "max_tokens": 6, "temperature": 1.5, "seed": 9}
    answer = client.completions.create(model="tiny", n=3, **options)
    assert server.metric("kvdrive_sessions_hits_total") - before == 2
    alone = [client.completions.create(model="tiny", **(options | {"seed": 9 + place})) for place in range(3)]
    assert [one.text for one in answer.choices] == [one.choices[0].text for one in alone]


def test_a_client_that_leaves_ends_its_answer(server):
    request = {"model": "tiny", "prompt": PROMPT, "max_tokens": 1900, "stream": True, "ignore_eos": True}
    cancelled = server.metric("kvdrive_cancelled_requests_total")
    with server.client.stream("POST", "/v1/completions", json=request) as response:
        next(response.iter_lines())
    server.wait_for("kvdrive_cancelled_requests_total", cancelled + 1)
    server.wait_for("kvdrive_sequences_running", 0)
    assert server.complete(prompt=PROMPT, max_tokens=4).json()["usage"]["completion_tokens"] == 4


def test_what_does_not_fit_is_refused(client, openai):
    with pytest.raises(openai.BadRequestError, match="takes 2047 at most"):
        client.completions.create(model="tiny", prompt=[5] * 2048, max_tokens=1)
    with pytest.raises(openai.BadRequestError, match="tokens are numbers from 0 to 2047"):
        client.completions.create(model="tiny", prompt=[5000], max_tokens=1)


def test_tokens_and_properties(server, models):  # noqa: F811
    ask = server.client.post
    tokens = ask("/tokenize", json={"content": PROMPT}).json()["tokens"]
    assert len(tokens) == generated(models(), "-n", 1)["prompts"][0]
    assert ask("/detokenize", json={"tokens": tokens}).json()["content"] == PROMPT
    pieces = ask("/tokenize", json={"content": PROMPT, "with_pieces": True}).json()["tokens"]
    assert "".join(one["piece"] for one in pieces) == PROMPT
    assert "messages" in server.client.get("/props").json()["chat_template"]
    assert server.complete(prompt=PROMPT, max_tokens=4).json()["usage"]["completion_tokens"] == 4
    assert server.client.get("/v1/stats").json()["read_inside_bytes"] > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--daily-writes", "1G"), "does not serve --daily-writes"),
        (("--active", "memory"), "does not serve --active memory"),
        (("--overflow", "trim"), "does not serve --overflow trim"),
        (("--xcache", "0.5"), "does not serve --xcache 0.5"),
        (("--concurrency", "300"), "computes 256 sequences at a time"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_are_refused_before_a_model_is_loaded(tmp_path, monkeypatch, built, options, sentence):
    for name, value in PLACES.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "empty.gguf").touch()  # no model: loading it would say so
    done = CliRunner().invoke(app, ["serve", "-m", str(tmp_path / "empty.gguf"), *options])
    assert isinstance(done.exception, InputError), done.output
    assert sentence in str(done.exception)


def test_a_batch_is_answered_several_at_a_time_and_goes_on(models, tmp_path):  # noqa: F811
    lines = [{"id": number, "prompt": prompt} for number, prompt in enumerate([*PROMPTS[:3], "1, " * 20_000])]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "answers.jsonl"
    command = ("batch", tmp_path / "prompts.jsonl", "-o", out, "-m", models(), "-n", 12, "--threads", 1)
    done = run(*command)
    assert done.returncode == 0, done.stderr
    found = {one["id"]: one for one in map(json.loads, out.read_text().splitlines())}
    assert "exceed the 16384 of" in found["3"]["error"]
    assert [found[str(number)]["text"] for number in range(3)] == [
        generated(models(), "-n", 12, prompts=[prompt])["text"][0] for prompt in PROMPTS[:3]
    ]
    out.write_text("\n".join(out.read_text().splitlines()[1:3]) + "\n")
    assert run(*command).returncode == 0
    assert sorted(json.loads(line)["id"] for line in out.read_text().splitlines()) == ["0", "1", "2", "3"]
