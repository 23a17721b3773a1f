"""An answer says where its conversation leaves the nearest stored one of its tenant."""

import pytest
from served_here import ServedHere

from kvdrive.server.tenants import Tenants

RULES = "You answer in few words, and you say so if you do not know. " * 8


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    tenants = Tenants([(f"key-of-{name}", name) for name in ("alice", "bob", "carol")])
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"), context=1024, tenants=tenants)
    yield server
    server.close()


def chat(server, key, *messages, path="/v1/chat/completions", **fields):
    said = [{"role": role, "content": text} for role, text in messages]
    wish = {"model": "tiny", "messages": said, "temperature": 0, "max_tokens": 4, **fields}
    answer = server.client.post(path, json=wish, headers={"Authorization": f"Bearer key-of-{key}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_header_that_changes_is_named(server):
    """What is in common is what was found. A conversation that goes on, or the first one of all, differs in nothing."""
    ask = ("user", "Rain?")
    first = chat(server, "alice", ("system", f"{RULES}Today is Monday."), ask)
    assert "differs" not in first["kvdrive"]
    second = chat(server, "alice", ("system", f"{RULES}Today is Friday."), ask)
    differs = second["kvdrive"]["differs"]
    assert differs["tokens"] == second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert (f"{RULES}Today is Monday.").endswith(differs["before"] + differs["stored"].partition(".")[0] + ".")
    assert differs["prompt"].lstrip().startswith("F")
    assert differs["stored"].lstrip().startswith("M")
    said = second["choices"][0]["message"]["content"]
    third = chat(server, "alice", ("system", f"{RULES}Today is Friday."), ask, ("assistant", said), ("user", "Sure?"))
    assert "differs" not in third["kvdrive"]


def test_a_header_in_front_is_compared_with_the_last_conversation(server):
    """It has less than a block in common, so that no prefix of it is found."""
    chat(server, "carol", ("system", f"It is 9:15. {RULES}"), ("user", "Rain?"))
    differs = chat(server, "carol", ("system", f"It is 9:47. {RULES}"), ("user", "Rain?"))["kvdrive"]["differs"]
    assert differs["tokens"] < 64
    assert differs["before"].endswith("It is 9:")
    assert (differs["prompt"][0], differs["stored"][0]) == ("4", "1")


def test_other_tenants_are_not_compared_with(server):
    chat(server, "alice", ("system", f"{RULES}The word is swordfish."), ("user", "Rain?"))
    other = chat(server, "bob", ("system", f"{RULES}The word is unknown."), ("user", "Rain?"))
    assert "differs" not in other["kvdrive"]


def test_other_protocols_say_it_too(server):
    wish = {"path": "/v1/messages", "system": f"{RULES}In Oslo."}
    chat(server, "bob", ("user", "Snow?"), **wish)
    assert chat(server, "bob", ("user", "Hail?"), **wish)["kvdrive"]["differs"]["prompt"].lstrip().startswith("H")
