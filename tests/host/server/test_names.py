"""Errors of every protocol speak of the fields that its clients send, though all of them become chats."""

import json

import pytest
from agent_requests import ASK
from served_here import ServedHere

from kvdrive.server.anthropic_messages import CountRequest, MessagesRequest
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import AsChat, parse, taken
from kvdrive.server.inputs import as_chat, in_words_of
from kvdrive.server.protocol import ChatRequest
from kvdrive.server.requests import BODIES

OTHERS = {path: kind for path, kind in BODIES.items() if issubclass(kind, AsChat)}
NAMES = [(path, name, own) for path, kind in OTHERS.items() for name, own in kind.names.items()]
SCHEMA = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
NO_SCHEMA = {"type": "json_schema", "name": "x", "schema": {"not": {}}}
MESSAGES = {"messages": ASK, "max_tokens": 2}
LONG = [{"role": "user", "content": "a b " * 200}]
# What a chat refuses, or the model, of each field with another name; nothing of the last ones.
WRONG = {
    ("/v1/responses", "input"): {"input": LONG},
    ("/v1/responses", "max_output_tokens"): {"input": "x", "max_output_tokens": 5000},
    ("/v1/responses", "text.format"): {"input": "x", "text": {"format": NO_SCHEMA}},
    ("/v1/responses", "reasoning.effort"): {"input": "x", "reasoning": {"effort": "high"}},
    ("/v1/messages", "stop_sequences"): MESSAGES | {"stop_sequences": ["x"] * 5},
    ("/v1/messages", "output_config.format"): MESSAGES | {
        "output_config": {"format": {"type": "json_schema", "schema": NO_SCHEMA["schema"]}}
    },
    ("/v1/messages/count_tokens", "output_config.format"): None,
    ("/v1/messages", "tool_choice.disable_parallel_tool_use"): None,
    ("/v1/messages/count_tokens", "tool_choice.disable_parallel_tool_use"): None,
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"))
    yield server
    server.close()


def test_each_name_has_a_request_that_is_refused():
    assert {(path, own) for path, _, own in NAMES} == set(WRONG)


@pytest.mark.parametrize(("path", "own"), [place for place, fields in WRONG.items() if fields])
def test_a_field_with_another_name_is_refused_by_the_name_that_was_sent(server, path, own):
    response = server.client.post(path, json={"model": "tiny"} | WRONG[path, own])
    error = response.json()["error"]
    assert response.status_code == 400, error
    others = [name for other, name, _ in NAMES if other == path and name not in OTHERS[path].known()]
    assert not any(name in error["message"].split() for name in others), error
    if "param" in error:
        assert error["param"] == own
    else:  # Anthropic's errors have the sentence alone
        assert own in error["message"] or own == "output_config.format"


@pytest.mark.parametrize(("path", "name", "own"), NAMES)
def test_the_first_words_and_the_param_of_an_error_are_renamed(path, name, own):
    error = ApiError(400, f"{name}[2].x must be another one", param=f"{name}[2].x", code="a").renamed(
        OTHERS[path].names
    )
    assert (str(error), error.param, error.code) == (f"{own}[2].x must be another one", f"{own}[2].x", "a")
    other = ApiError(400, f"{name}s are bad", param="temperature").renamed(OTHERS[path].names)
    assert (str(other), other.param) == (f"{name}s are bad", "temperature")


FULL = {
    MessagesRequest: MESSAGES | {
        "model": "m", "system": "x", "stop_sequences": ["x"], "temperature": 1, "top_p": 0.5, "top_k": 4,
        "stream": True, "tools": [{"name": "weather", "input_schema": {}}], "tool_choice": {"type": "none"},
        "output_config": {"format": {"type": "json_schema", "schema": {}}},
    },
}  # fmt: skip
FULL[CountRequest] = {
    name: FULL[MessagesRequest][name] for name in CountRequest.known() if name in FULL[MessagesRequest]
}
FULL[OTHERS["/v1/responses"]] = {
    "model": "m", "input": "x", "instructions": "x", "max_output_tokens": 4, "stream": True, "temperature": 1,
    "top_p": 0.5, "tools": [{"type": "function", "name": "weather"}], "tool_choice": "none",
    "parallel_tool_calls": True, "text": {"format": SCHEMA},
}  # fmt: skip
FULL[OTHERS["/v1/answers/{answer}"]] = {
    "model": "m", "messages": ASK, "session": "x", "max_tokens": 4, "temperature": 1, "top_p": 0.5, "top_k": 4,
    "min_p": 0.1, "repetition_penalty": 1.1, "seed": 7,
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS.values())
def test_every_field_of_the_chat_is_one_that_the_client_can_send(kind):
    """Those that a chat gets from a whole request have the client's name, or another one in the table."""
    chat = parse(kind, json.dumps(FULL[kind]).encode()).for_chat()
    assert set(taken(ChatRequest, chat).model_fields_set) <= kind.known().keys() | kind.names.keys()


def test_entries_of_stop_sequences_are_named():
    request = parse(MessagesRequest, json.dumps(MESSAGES | {"model": "m", "stop_sequences": ["x", ""]}).encode())
    with pytest.raises(ApiError, match=r"^stop_sequences must be up to 4 texts") as found, in_words_of(request):
        as_chat(request)
    assert found.value.param == "stop_sequences"
