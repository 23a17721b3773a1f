"""Paths that apps of llama.cpp's server expect, and the OpenAPI document."""

import pytest
from served_here import SLOTS, ServedHere

from kvdrive.server.requests import BODIES


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"))
    yield server
    server.close()


def ask(server, path, **fields):
    return server.client.post(path, json=fields).json()


TEXT = "The drive, naïve 媽"


def test_a_text_comes_back_from_its_tokens(server):
    tokens = ask(server, "/tokenize", content=TEXT)["tokens"]
    assert ask(server, "/detokenize", tokens=tokens) == {"content": TEXT}
    assert ask(server, "/tokenize", content="")["tokens"] == []


def test_pieces_are_texts_or_bytes(server):
    pieces = [one["piece"] for one in ask(server, "/tokenize", content=TEXT, with_pieces=True)["tokens"]]
    assert b"".join(bytes(one) if isinstance(one, list) else one.encode() for one in pieces) == TEXT.encode()
    assert any(isinstance(one, list) for one in pieces)
    ids = [one["id"] for one in ask(server, "/tokenize", content=TEXT, with_pieces=True)["tokens"]]
    assert ids == ask(server, "/tokenize", content=TEXT)["tokens"]


def test_names_of_special_tokens_are_tokens_or_text(server):
    """Token 0 of this model ends a text."""
    assert ask(server, "/tokenize", content="<end>")["tokens"] == [0]
    plain = ask(server, "/tokenize", content="<end>", parse_special=False)["tokens"]
    assert len(plain) > 1
    assert ask(server, "/detokenize", tokens=plain)["content"] == "<end>"


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": [1]}, "content"),
        ("/tokenize", {"content": "x", "text": "x"}, "text"),
        ("/detokenize", {"tokens": [10**6]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1] * 65}, "tokens"),
        ("/tokenize", {"content": "x" * 5000}, "content"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
def test_what_they_do_not_take_is_refused_by_name(server, path, fields, param):
    response = server.client.post(path, json=fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_properties_are_those_of_this_server(server):
    found = server.client.get("/props").json()
    assert found["default_generation_settings"]["n_ctx"] == 64
    assert (found["total_slots"], found["model_path"]) == (SLOTS, "tiny")
    assert "tool_call" in found["chat_template"]
    assert found["modalities"] == {"vision": False, "audio": False}


def test_embeddings_are_refused_in_a_sentence(server, openai):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match="give no embeddings"):
            client.embeddings.create(model="tiny", input="x")
        assert client.models.retrieve("tiny").id == "tiny"


def test_the_document_has_every_path_and_field(server):
    found = server.client.get("/openapi.json").json()
    assert {path for path in found["paths"] if "post" in found["paths"][path]} == {*BODIES, "/v1/embeddings"}
    assert {"get", "delete"} == set(found["paths"]["/v1/responses/{response}"])
    for path, kind in BODIES.items():
        schema = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(schema["properties"]) == {*kind.known(), *kind.neutral, *kind.harmless}
        assert all("description" in one or name == "model" for name, one in schema["properties"].items())
    assert found["paths"]["/v1/models/{name}"]["get"]["parameters"][0]["name"] == "name"
