"""OpenAI's responses in the next process: the official client goes on with one after SIGKILL."""

import sqlite3
from contextlib import closing

import pytest
import server_process
from agent_requests import WEATHER
from fixed_rates import KVDRIVE
from server_process import Server

TOOL = {"type": "function", "strict": True, **WEATHER["function"]}
WISH = {"model": "tiny", "input": "Rain in Oslo?", "temperature": 0, "max_output_tokens": 12}
DIES = """
import os, signal
from kvdrive.server.session_paths import SessionPaths
SessionPaths.write_note = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def serve(tools_checkpoint, tmp_path):
    servers = []
    keys = tmp_path / "keys"
    keys.write_text("alice key-of-alice\nbob key-of-bob\n")

    def start():
        for earlier in servers:
            earlier.kill()
        servers.append(Server(tools_checkpoint, tmp_path, "--drive", tmp_path / "drives", "--keys", keys))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def client_of(openai):
    def make(server, tenant="alice"):
        url = f"{server.client.base_url}/v1"
        return openai.OpenAI(base_url=url, api_key=f"key-of-{tenant}", max_retries=0)

    return make


def unknown(openai, ask):
    with pytest.raises(openai.NotFoundError, match="send the whole conversation") as found:
        ask()
    return found.value.code == "response_not_found"


def damage(folder, name):
    """Change one letter of what stands beside the session with this name."""
    (path,) = (one for one in folder.rglob("*") if one.is_file() and one.read_bytes()[:15] == b"SQLite format 3")
    with closing(sqlite3.connect(path)) as db, db:
        ((session, note),) = db.execute(
            "SELECT session, text FROM notes JOIN sessions ON id=session WHERE name=?", (name,)
        )
        db.execute("UPDATE notes SET text=? WHERE session=?", (note.replace(b"Oslo", b"Olso", 1), session))
    return path


def test_responses_are_gone_on_with_after_kill_9(serve, client_of, openai, tmp_path):
    server = serve()
    with client_of(server) as client:
        first = client.responses.create(**WISH, instructions="Be short.")
        with client.responses.stream(**(WISH | {"previous_response_id": first.id, "input": "And in Rome?"})) as events:
            second = list(events)[-1].response
        third = client.responses.create(**(WISH | {"input": "At night?"}), previous_response_id=second.id, store=False)
        called = client.responses.create(
            **(WISH | {"max_output_tokens": 200}), tools=[TOOL], tool_choice="required", parallel_tool_calls=False
        )
        damaged = client.responses.create(**WISH)
        removed = client.responses.create(**WISH)
        client.responses.delete(removed.id)
    server.kill()
    index = damage(tmp_path / "drives", damaged.id)
    assert index.stat().st_mode & 0o777 == 0o600

    server = serve()
    with client_of(server) as client, client_of(server, "bob") as other:
        assert client.responses.retrieve(second.id) == second
        again = client.responses.create(**(WISH | {"input": "At night?"}), previous_response_id=second.id, store=False)
        assert again.output_text == third.output_text
        assert again.usage.input_tokens == third.usage.input_tokens
        # What was generated is found on the drive, up to the first token that is no whole character.
        assert again.usage.input_tokens_details.cached_tokens > second.usage.input_tokens
        (call,) = called.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        told = client.responses.create(**(WISH | {"input": [result]}), tools=[TOOL], previous_response_id=called.id)
        assert told.usage.input_tokens > called.usage.input_tokens
        for name in (third.id, removed.id, damaged.id):
            assert unknown(openai, lambda name=name: client.responses.create(**WISH, previous_response_id=name))
        assert unknown(openai, lambda: other.responses.retrieve(first.id))
        assert unknown(openai, lambda: other.responses.create(**WISH, previous_response_id=first.id))
        client.responses.delete(first.id)
        assert unknown(openai, lambda: client.responses.retrieve(first.id))
        assert client.responses.retrieve(second.id) == second
    assert "is damaged, and is removed" in server.said()
    server.kill()
    with closing(sqlite3.connect(index)) as db:
        texts = [text for (text,) in db.execute("SELECT text FROM notes")]
    assert len(texts) == 3  # the second one, the one with a call, and what goes on with that
    assert sum(b"At night?" in text for text in texts) == 0  # "store": false


def test_a_response_whose_server_was_killed_before_it_was_kept_is_unknown(serve, client_of, openai, monkeypatch):
    monkeypatch.setattr(server_process, "KVDRIVE", DIES + KVDRIVE)
    server = serve()
    with client_of(server) as client:
        events = client.responses.create(**WISH, stream=True)
        name = next(iter(events)).response.id
        with pytest.raises(openai.APIConnectionError):
            client.responses.create(**(WISH | {"input": "And in Rome?"}))
    assert server.process.wait(30) == -9
    monkeypatch.setattr(server_process, "KVDRIVE", KVDRIVE)
    server = serve()
    with client_of(server) as client:
        listed = server.client.get("/v1/sessions", headers={"Authorization": "Bearer key-of-alice"}).json()["data"]
        assert name in [one["name"] for one in listed]  # K and V are there
        assert unknown(openai, lambda: client.responses.retrieve(name))
        assert unknown(openai, lambda: client.responses.create(**WISH, previous_response_id=name))
