"""OpenAI's responses, asked by its official client."""

import json

import pytest
from agent_requests import WEATHER
from served_here import ServedHere

from kvdrive.server.errors import ApiError
from kvdrive.server.fields import parse, taken
from kvdrive.server.kept_responses import Kept, KeptResponses
from kvdrive.server.protocol import ChatRequest
from kvdrive.server.responses_requests import InputItem, ResponseRequest
from kvdrive.server.tenants import Tenants

TOOL = {"type": "function", "strict": True, **WEATHER["function"]}
WISH = {"model": "tiny", "input": "Rain?", "temperature": 0, "max_output_tokens": 12, "store": False}
MUST = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 200}


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    tenants = Tenants([("key-of-alice", "alice"), ("key-of-bob", "bob")])
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"), context=1024, tenants=tenants)
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(server, openai):
    url = f"http://127.0.0.1:{server.port}/v1"
    with openai.OpenAI(base_url=url, api_key="key-of-alice", max_retries=0) as client:
        yield client


def create(client, **fields):
    return client.responses.create(**(WISH | fields))


def test_an_answer_is_the_one_of_a_chat(client):
    answer = create(client, instructions="Be short.")
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Rain?"}]
    same = client.chat.completions.create(model="tiny", messages=messages, temperature=0, max_tokens=12)
    assert answer.output_text == same.choices[0].message.content
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.usage.output_tokens == 12
    assert answer.usage.input_tokens == same.usage.prompt_tokens


def test_calls_are_items_and_results_go_back(client):
    first = create(client, **MUST)
    (call,) = first.output
    assert (call.type, call.name, first.status) == ("function_call", "weather", "completed")
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    history = [{"role": "user", "content": "Rain?"}, call.model_dump(exclude_none=True), result]
    second = create(client, input=history, tools=[TOOL])
    assert second.usage.output_tokens == 12
    assert second.usage.input_tokens > first.usage.input_tokens


def test_an_answer_is_json_of_the_schema(client):
    schema = {
        "type": "object",
        "properties": {"ready": {"type": "boolean"}},
        "required": ["ready"],
        "additionalProperties": False,
    }
    wanted = {"format": {"type": "json_schema", "name": "state", "schema": schema, "strict": True}}
    assert isinstance(json.loads(create(client, text=wanted, max_output_tokens=50).output_text)["ready"], bool)


@pytest.mark.parametrize("options", [{}, MUST])
def test_a_stream_adds_up_to_the_whole_answer(client, options):
    """The client's own helper puts the events together."""
    whole = create(client, **options)
    with client.responses.stream(**(WISH | options)) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    found = events[-1].response
    names = {"id": True, "call_id": True, "parsed_arguments": True, "content": {"__all__": {"parsed"}}}
    plain = [[one.model_dump(exclude=names) for one in answer.output] for answer in (found, whole)]
    assert plain[0] == plain[1]
    assert (found.status, found.usage.output_tokens) == (whole.status, whole.usage.output_tokens)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_goes_on_with_an_earlier_one(client, stream):
    """The same answer as to the whole conversation; what was generated is found on the drive."""

    def asked(**fields):
        if not stream:
            return create(client, **(fields | {"store": True}))
        with client.responses.stream(**(WISH | fields | {"store": True})) as events:
            return list(events)[-1].response

    first = asked(input=f"Rain in Oslo, {stream}?", instructions="Be short.")
    second = asked(input="And in Rome?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    history = [
        {"role": "user", "content": f"Rain in Oslo, {stream}?"},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And in Rome?"},
    ]
    whole = create(client, input=history)  # instructions are not taken over
    assert second.output_text == whole.output_text
    again = asked(input="And in Rome?", previous_response_id=first.id, instructions="Be short.")
    # Tokens of the answer are found up to the first one that is no whole character: its text cannot be sent back.
    assert again.usage.input_tokens_details.cached_tokens > first.usage.input_tokens
    third = asked(input="And at night?", previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.input_tokens


def test_calls_of_an_earlier_response_are_answered(client):
    first = create(client, store=True, **MUST)
    (call,) = first.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = create(client, input=[result], tools=[TOOL], previous_response_id=first.id, store=True)
    cached = second.usage.input_tokens_details.cached_tokens
    assert cached >= first.usage.input_tokens + first.usage.output_tokens - 1


def test_a_response_is_read_and_removed_by_its_tenant(server, client, openai):
    first = create(client, store=True)
    assert client.responses.retrieve(first.id) == first
    other = client.with_options(api_key="key-of-bob")
    for ask in (
        lambda: other.responses.retrieve(first.id),
        lambda: other.responses.delete(first.id),
        lambda: create(other, previous_response_id=first.id),
    ):
        with pytest.raises(openai.NotFoundError, match="send the whole conversation"):
            ask()

    def names():
        listed = server.client.get("/v1/sessions", headers={"Authorization": "Bearer key-of-alice"}).json()["data"]
        return [one["name"] for one in listed]

    assert first.id in names()
    client.responses.delete(first.id)
    assert first.id not in names()
    with pytest.raises(openai.NotFoundError) as found:
        create(client, previous_response_id=first.id)
    assert (found.value.param, found.value.code) == ("previous_response_id", "response_not_found")


def test_a_response_that_is_not_stored_cannot_be_gone_on_with(client, openai):
    first = create(client)
    with pytest.raises(openai.NotFoundError):
        create(client, previous_response_id=first.id)


def test_the_room_for_responses_is_bounded():
    kept = KeptResponses(most=3, characters=10)
    item = [taken(InputItem, {"role": "user", "content": "four"})]
    for number in range(3):
        kept.keep("alice", f"resp_{number}", Kept({"id": number}, item))
    kept.keep("bob", "resp_0", Kept({"id": "bob"}, item))
    assert kept.get("alice", "resp_0") is None
    assert kept.get("alice", "resp_1").document == {"id": 1}
    kept.keep("alice", "resp_3", Kept({"id": 3}, item))
    assert kept.get("alice", "resp_2") is None  # the one that was used least recently
    kept.keep("alice", "resp_4", Kept({"id": 4}, item * 3))
    assert not any(kept.get("alice", f"resp_{number}") for number in range(5))
    assert kept.get("bob", "resp_0").document == {"id": "bob"}
    kept.drop("bob", "resp_0")
    assert kept.get("bob", "resp_0") is None


def test_an_answer_that_is_too_long_is_refused_by_the_name_of_its_field(client, openai):
    with pytest.raises(openai.BadRequestError, match="max_output_tokens is too large") as found:
        create(client, max_output_tokens=5000)
    assert found.value.param == "max_output_tokens"


def fields(**change):
    return parse(ResponseRequest, json.dumps({"model": "m", "input": "x"} | change).encode())


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "[]"}]}, "input[0].arguments"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].encrypted_content"),
        ({"input": [{"type": "item_reference"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": "x", "name": "b"}]}, "input[0].name"),
        ({"wishes": 1}, "wishes"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(change, param):
    with pytest.raises(ApiError) as found:
        fields(**change)
    assert (found.value.status, found.value.param) == (400, param)


def test_items_of_one_turn_become_one_message():
    calls = [{"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"} for name in "ab"]
    results = [{"type": "function_call_output", "call_id": name, "output": name} for name in "ab"]
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
    }
    request = fields(input=[{"role": "user", "content": "Rain?"}, said, *calls, *results], instructions="Be short.")
    messages = taken(ChatRequest, request.for_chat()).messages
    assert [(one.role, one.text) for one in messages] == [
        ("system", "Be short."), ("user", "Rain?"), ("assistant", "I look."), ("tool", "a"), ("tool", "b"),
    ]  # fmt: skip
    assert [call.id for call in messages[2].tool_calls] == ["a", "b"]
