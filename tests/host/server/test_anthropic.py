"""Anthropic's messages, asked by its official client."""

import json
from contextlib import closing

import pytest
from agent_requests import ASK, WEATHER
from served_here import ServedHere

from kvdrive.server.anthropic_messages import MessagesRequest
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import parse
from kvdrive.server.fields import taken as taken_as
from kvdrive.server.protocol import ChatRequest
from kvdrive.server.tenants import Tenants

TOOL = {"name": "weather", "description": "The weather.", "input_schema": WEATHER["function"]["parameters"]}


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    tenants = Tenants([("the-key", "alice")])
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"), context=1024, tenants=tenants)
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(server, anthropic):
    url = f"http://127.0.0.1:{server.port}"
    with closing(anthropic.Anthropic(base_url=url, api_key="the-key", max_retries=0)) as client:
        yield client


WISH = {"model": "tiny", "messages": ASK, "max_tokens": 12, "extra_body": {"temperature": 0}}


def create(client, **fields):
    return client.messages.create(**(WISH | fields))


def chat(server, **fields):
    """The same server, asked for a chat of OpenAI's."""
    headers = {"Authorization": "Bearer the-key"}
    fields = {"model": "tiny", "max_tokens": 12, "temperature": 0} | fields
    return server.client.post("/v1/chat/completions", json=fields, headers=headers).json()


def test_an_answer_is_the_one_of_a_chat_of_openai(server, client):
    answer = create(client, system="Be short.")
    same = chat(server, messages=[{"role": "system", "content": "Be short."}, *ASK])
    assert [one.text for one in answer.content] == [same["choices"][0]["message"]["content"]]
    assert (answer.role, answer.stop_reason, answer.stop_sequence) == ("assistant", "max_tokens", None)
    assert answer.usage.output_tokens == 12
    counted = client.messages.count_tokens(model="tiny", messages=ASK, system="Be short.").input_tokens
    assert counted == same["usage"]["prompt_tokens"]


def test_tokens_found_on_the_drive_are_counted_apart(client):
    first = create(client, messages=[{"role": "user", "content": "A long question about many things. " * 3}])
    said = [*[{"role": "user", "content": "A long question about many things. " * 3}]]
    said += [{"role": "assistant", "content": first.content[0].text}, {"role": "user", "content": "And?"}]
    second = create(client, messages=said)
    whole = client.messages.count_tokens(model="tiny", messages=said).input_tokens
    assert first.usage.cache_read_input_tokens < first.usage.input_tokens
    assert second.usage.cache_read_input_tokens >= first.usage.input_tokens - 1
    assert second.usage.input_tokens + second.usage.cache_read_input_tokens == whole


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_calls_are_blocks_and_results_go_back(client, choice):
    choice = choice | {"disable_parallel_tool_use": True}
    first = create(client, tools=[TOOL], tool_choice=choice, max_tokens=200)
    (call,) = first.content
    assert (call.type, call.name, first.stop_reason) == ("tool_use", "weather", "tool_use")
    assert call.input["city"] in ("Oslo", "Rome")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    history = [
        *ASK,
        {"role": "assistant", "content": [call.model_dump(exclude_none=True)]},
        {"role": "user", "content": [result]},
    ]
    assert create(client, tools=[TOOL], messages=history).usage.output_tokens == 12


def test_a_stream_adds_up_to_the_whole_answer(client):
    """The client's own helper puts the events together and checks their order."""
    for options in ({}, {"tools": [TOOL], "tool_choice": {"type": "any"}, "max_tokens": 200}):
        whole = create(client, **options)
        with client.messages.stream(**(WISH | options)) as stream:
            found = stream.get_final_message()
        plain = [one.model_dump(exclude={"id"}) for one in found.content]
        assert plain == [one.model_dump(exclude={"id"}) for one in whole.content]
        assert found.stop_reason == whole.stop_reason
        assert found.usage.output_tokens == whole.usage.output_tokens


def test_an_answer_is_json_of_the_schema(client):
    schema = {
        "type": "object",
        "properties": {"ready": {"type": "boolean"}},
        "required": ["ready"],
        "additionalProperties": False,
    }
    answer = create(client, output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=50)
    assert isinstance(json.loads(answer.content[0].text)["ready"], bool)
    assert answer.stop_reason == "end_turn"


def test_the_text_that_ended_an_answer_is_said(client):
    said = create(client).content[0].text
    answer = create(client, stop_sequences=["never said", said[2]])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", said[2])
    assert "".join(one.text for one in answer.content) == said[: said.index(said[2])]


def test_errors_are_of_its_kinds(server, client, anthropic):
    with pytest.raises(anthropic.BadRequestError, match="max_tokens is too large"):
        create(client, max_tokens=5000)
    with pytest.raises(anthropic.NotFoundError, match="no model 'claude' here"):
        create(client, model="claude")
    with pytest.raises(anthropic.AuthenticationError):
        create(client.with_options(api_key="wrong"))
    for body in (b"{", b'{"model": "tiny"}'):
        answer = server.client.post("/v1/messages", content=body, headers={"x-api-key": "the-key"})
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def taken(**fields):
    return parse(MessagesRequest, json.dumps({"model": "m", "messages": ASK, "max_tokens": 5} | fields).encode())


def blocks(role, *several):
    return {"messages": [{"role": role, "content": list(several)}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        (blocks("user", {"type": "thinking", "thinking": "x"}), "messages[0].content"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"wishes": 1}, "wishes"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [{"name": "a", "input_schema": 5}]}, "tools[0].input_schema"),
        (blocks("user", {"type": "image", "source": {}}), "messages[0].content[0].source"),
        (blocks("user", {"type": "image"}), "messages[0].content[0].type"),
        (blocks("user", {"type": "text"}), "messages[0].content[0].text"),
        (blocks("user", {"type": "text", "text": "x", "id": "a"}), "messages[0].content[0].id"),
        (blocks("user", {"type": "tool_use", "id": "a", "name": "b", "input": {}}), "messages[0].content"),
        (blocks("assistant", {"type": "tool_result", "tool_use_id": "a"}), "messages[0].content"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(fields, param):
    with pytest.raises(ApiError) as found:
        taken(**fields)
    assert (found.value.status, found.value.param) == (400, param)


def test_blocks_become_messages_of_a_chat():
    hint = {"cache_control": {"type": "ephemeral"}}
    look = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
    failed = {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "text", "text": "no net"}],
        "is_error": True,
    }
    request = taken(
        system=[{"type": "text", "text": "Be ", **hint}, {"type": "text", "text": "short."}],
        messages=[
            *ASK,
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, look]},
            {"role": "user", "content": [failed, {"type": "text", "text": "And?", **hint}]},
        ],
        stop_sequences=["x"],
    )
    found = taken_as(ChatRequest, request.for_chat())
    said = [(one.role, one.text) for one in found.messages]
    assert said[:3] == [("system", "Be short."), ("user", "Rain?"), ("assistant", "I look.")]
    assert said[3:] == [("tool", "error: no net"), ("user", "And?")]
    (call,) = found.messages[2].tool_calls
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == ("a", "f", {"x": 1})
    assert (found.stops, found.limit) == (["x"], ("max_tokens", 5))
