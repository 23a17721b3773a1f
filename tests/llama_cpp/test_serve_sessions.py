"""Conversations of a server that llama.cpp computes outlive it, as those of transformers do."""

from functools import partial

import pytest
from served import Servers
from session_scenarios import (
    LONG,
    ask,
    goes_on_with_tokens_of_a_name,
    models_refuse_each_other,
    saves_what_runs_on_sigterm,
    sessions_are_removed_and_bounded,
    slots_are_saved_and_restored,
    survives_a_kill,
)
from test_generate import generated, models  # noqa: F401 (a fixture)


@pytest.fixture
def serve(models, tmp_path):  # noqa: F811
    """A function that starts a server, of mini unless a model is given."""
    servers = Servers(tmp_path)

    def start(*options, model=None):
        return servers.start(model or models(), "--context", 4096, *options)

    yield start
    servers.kill()


def said_by(model, prompt, tokens=12):
    return generated(model, "-n", tokens, prompts=[prompt])["text"][0]


def test_a_conversation_survives_kill_9(serve, models):  # noqa: F811
    survives_a_kill(serve, partial(said_by, models()))


@pytest.mark.slow
def test_a_named_session_continues_with_the_tokens_that_it_holds(serve):
    server = serve()
    tokens = [server.client.post("/tokenize", json={"content": letter}).json()["tokens"] for letter in LONG]
    goes_on_with_tokens_of_a_name(serve, [token for several in tokens for token in several])


@pytest.mark.slow
def test_a_running_answer_is_saved_on_sigterm(serve):
    saves_what_runs_on_sigterm(serve)


@pytest.mark.slow
def test_slots_save_and_restore(serve):
    slots_are_saved_and_restored(serve)


@pytest.mark.slow
def test_sessions_are_removed_and_bounded(serve):
    sessions_are_removed_and_bounded(serve("--idle", 2, "--eviction", "fifo"))


@pytest.mark.slow
def test_models_refuse_each_others_k_and_v(serve, models, tmp_path):  # noqa: F811
    """Of the other one, many numbers of the last matrix have another sign."""
    other, content = tmp_path / "other.gguf", bytearray(models().read_bytes())
    for at in range(len(content) - 200_000 | 1, len(content), 2):  # their high bytes
        content[at] ^= 0x80
    other.write_bytes(content)
    models_refuse_each_other(serve, partial(serve, model=other), partial(said_by, models()), partial(said_by, other))


@pytest.mark.slow
def test_tenants_share_nothing(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice key-of-alice\nbob key-of-bob\n")
    keys.chmod(0o600)
    server = serve("--keys", keys)

    def asked(key):
        answer = server.client.post(
            "/v1/completions",
            json={"model": "tiny", "prompt": LONG, "max_tokens": 4, "session": "talk"},
            headers={"Authorization": f"Bearer {key}"},
        ).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert asked("key-of-alice") == 0
    assert asked("key-of-bob") == 0
    assert asked("key-of-alice") > 0


@pytest.mark.slow
def test_a_name_that_another_request_uses_is_refused(serve):
    server = serve()
    request = {
        "model": "tiny",
        "prompt": LONG,
        "max_tokens": 3000,
        "stream": True,
        "session": "talk",
        "ignore_eos": True,
    }
    with server.client.stream("POST", "/v1/completions", json=request) as response:
        lines = response.iter_lines()  # the answer goes on while they are held
        next(lines)
        refused = server.complete(prompt=LONG, max_tokens=2, session="talk")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_unavailable")


@pytest.mark.slow
def test_a_session_of_generate_goes_on_in_a_server(serve, models, tmp_path):  # noqa: F811
    """The label of both is the same: they share the drive, its index and the sessions."""
    (tmp_path / "drives").mkdir()
    found = generated(models(), "-n", 4, "--drive", tmp_path / "drives", "--session", "talk", prompts=[LONG])
    _, cached, answer = ask(serve(), LONG + found["text"][0], session="talk")
    assert found["prompts"][0] <= cached < answer["usage"]["prompt_tokens"]
