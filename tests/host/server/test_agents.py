"""What agents and apps ask of a chat: tools, formats, how likely tokens were. The official client of OpenAI asks."""

import json

import pytest
import torch
from agent_requests import ASK, CLOCK, WEATHER
from served_here import ServedHere
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvdrive.generation.rules import Rules
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import parse
from kvdrive.server.protocol import ChatRequest


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"), context=1024)
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(server, openai):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(client, **fields):
    return client.chat.completions.create(model="tiny", **({"messages": ASK, "seed": 5} | fields))


def collected(stream):
    """Text, calls by their place, and the reason of a stream's end."""
    text, calls, reason = "", {}, None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for one in choice.delta.tool_calls or ():
                assert one.index not in calls
                calls[one.index] = one
            reason = choice.finish_reason or reason
    return text, [calls[place] for place in sorted(calls)], reason


@pytest.mark.parametrize("temperature", [0, 2])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_an_answer_that_must_call_calls_as_the_schema_says(client, choice, temperature):
    answer = chat(
        client, tools=[WEATHER, CLOCK], tool_choice=choice, parallel_tool_calls=False, temperature=temperature
    )
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.content is None
    arguments = json.loads(call.function.arguments)
    if choice != "required":
        assert call.function.name == "weather"
    if call.function.name == "weather":
        assert arguments["city"] in ("Oslo", "Rome")
        assert 1 <= arguments["days"] <= 9
        assert len(arguments) == 2
    else:
        assert (call.function.name, arguments) == ("clock", {})


def test_a_streamed_call_is_the_one_of_the_whole_answer(client):
    options = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    (whole,) = chat(client, **options).choices[0].message.tool_calls
    text, (call,), reason = collected(chat(client, stream=True, **options))
    assert (text, reason) == ("", "tool_calls")
    assert (call.function.name, call.function.arguments) == (whole.function.name, whole.function.arguments)


def test_results_of_tools_go_back_in_the_next_turn(client):
    """The template writes calls and results; the history is found on the drive."""
    options = {"tools": [WEATHER], "extra_body": {"session": "agent"}}
    first = chat(client, tool_choice="required", parallel_tool_calls=False, **options)
    (call,) = first.choices[0].message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    history = [*ASK, first.choices[0].message.model_dump(exclude_none=True), result]
    second = chat(client, messages=history, max_tokens=4, **options)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 1


def test_without_a_choice_the_model_may_say_what_it_likes(client):
    answer = chat(client, tools=[WEATHER], max_tokens=8)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.tool_calls is None
    same = chat(client, tools=[WEATHER], tool_choice="none", max_tokens=8)
    assert same.choices[0].message.content == chat(client, max_tokens=8).choices[0].message.content


@pytest.mark.parametrize("temperature", [0, 2])
def test_an_answer_is_json_of_the_schema(client, temperature):
    schema = {
        "$defs": {"size": {"enum": ["small", "large"]}},
        "type": "object",
        "properties": {"size": {"$ref": "#/$defs/size"}, "ready": {"type": "boolean"}},
        "required": ["size", "ready"],
        "additionalProperties": False,
    }
    wanted = as_format(schema)
    answer = chat(client, response_format=wanted, temperature=temperature)
    found = json.loads(answer.choices[0].message.content)
    assert found["size"] in ("small", "large")
    assert isinstance(found["ready"], bool)
    assert answer.choices[0].finish_reason == "stop"
    text, _, reason = collected(chat(client, response_format=wanted, temperature=temperature, stream=True))
    assert (json.loads(text), reason) == (found, "stop")


def test_with_tools_and_a_format_an_answer_is_a_call_or_json(server, client):
    """The model chooses by its first token."""
    begin = str(server.model.tokenizer.convert_tokens_to_ids("<tool_call>"))
    dry = {"properties": {"dry": {"type": "boolean"}}, "required": ["dry"], "additionalProperties": False}
    schema = {"type": "object", **dry}
    wish = {"tools": [WEATHER], "response_format": as_format(schema), "parallel_tool_calls": False, "temperature": 2}
    called = chat(client, logit_bias={begin: 100}, **wish).choices[0]
    (call,) = called.message.tool_calls
    assert (call.function.name, called.finish_reason) == ("weather", "tool_calls")
    said = chat(client, logit_bias={begin: -100}, **wish).choices[0]
    assert isinstance(json.loads(said.message.content)["dry"], bool)
    assert (said.message.tool_calls, said.finish_reason) == (None, "stop")
    forced = chat(client, tool_choice="required", **wish).choices[0]
    assert [one.function.name for one in forced.message.tool_calls] == ["weather"]


def test_sequences_with_other_grammars_share_decode_steps(server, client):
    """Rows of one call of the model, each with a grammar of its own or none."""
    steps = server.metric("kvdrive_batch_rows_count")
    streams = [
        chat(client, stream=True, response_format={"type": "json_object"}, max_tokens=40, temperature=2),
        chat(client, stream=True, max_tokens=40),
    ]
    first, second = (collected(one) for one in streams)
    assert first[0].startswith("{")
    alone = chat(client, max_tokens=40)
    assert second[0] == alone.choices[0].message.content
    assert server.metric("kvdrive_batch_rows_count") >= steps


def test_how_likely_tokens_were(client, tools_checkpoint):
    answer = chat(client, logprobs=True, top_logprobs=3, max_tokens=5, temperature=0, stop=None)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for one in content:
        assert [one.token, one.logprob] == [one.top_logprobs[0].token, one.top_logprobs[0].logprob]
        assert [other.logprob for other in one.top_logprobs] == sorted(
            (o.logprob for o in one.top_logprobs), reverse=True
        )
        assert bytes(one.bytes).decode() == one.token
    streamed = [
        one
        for chunk in chat(client, logprobs=True, top_logprobs=3, max_tokens=5, temperature=0, stream=True)
        for choice in chunk.choices
        if choice.logprobs
        for one in choice.logprobs.content
    ]
    assert streamed == content
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(tools_checkpoint),
        AutoTokenizer.from_pretrained(tools_checkpoint),
    )
    ids = tokenizer.apply_chat_template(ASK, add_generation_prompt=True, return_tensors="pt", return_dict=True)[
        "input_ids"
    ]
    with torch.no_grad():
        expected = model(ids).logits[0, -1].float().log_softmax(-1).max()
    assert content[0].logprob == pytest.approx(float(expected), abs=0.01)


def test_how_likely_tokens_of_a_completion_were(client):
    answer = client.completions.create(model="tiny", prompt="Rain", max_tokens=4, temperature=0, logprobs=2)
    found = answer.choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset) == 4
    assert [max(top.values()) for top in found.top_logprobs] == found.token_logprobs
    assert found.text_offset[0] == 0


def test_tokens_are_forbidden_wanted_and_awaited(client):
    plain = client.completions.create(model="tiny", prompt="Rain", max_tokens=6, temperature=0, logprobs=0)
    text = plain.choices[0].text
    biased = client.completions.create(model="tiny", prompt="Rain", max_tokens=6, temperature=0, logit_bias={"70": 100})
    assert biased.choices[0].text == biased.choices[0].text[0] * 6 != text
    ended = client.completions.create(
        model="tiny",
        prompt="Rain",
        max_tokens=6,
        temperature=0,
        logit_bias={"70": 100},
        extra_body={"stop_token_ids": [70]},
    )
    assert (ended.choices[0].text, ended.choices[0].finish_reason) == ("", "stop")
    later = client.completions.create(
        model="tiny",
        prompt="Rain",
        max_tokens=6,
        temperature=0,
        logit_bias={"70": 100},
        extra_body={"stop_token_ids": [70], "min_tokens": 3},
    )
    assert (later.usage.completion_tokens, later.choices[0].finish_reason) == (4, "stop")


def test_the_end_of_the_model_is_ignored_on_demand(client):
    """Token 0 is the end of a text of this model."""
    options = {"prompt": "Rain", "max_tokens": 5, "temperature": 0, "logit_bias": {"0": 100}}
    assert client.completions.create(model="tiny", **options).usage.completion_tokens == 1
    on = client.completions.create(model="tiny", **options, extra_body={"ignore_eos": True})
    assert (on.usage.completion_tokens, on.choices[0].finish_reason) == (5, "length")


def test_penalties_are_those_of_their_formulas():
    logits = torch.tensor([[2.0, -2.0, 1.0, 0.5]])
    rules = Rules(presence=0.5, frequency=0.25, bias={3: 1.0})
    assert rules.applied(logits, [1], [0, 0, 3]).tolist() == [[1.0, -2.0, 1.0, 0.75]]
    assert Rules(repetition=2.0).applied(logits, [1], [0]).tolist() == [[1.0, -4.0, 1.0, 0.5]]
    assert Rules(ends=frozenset([1]), least=2).applied(logits, [1], [0])[0, 1] == -torch.inf
    assert Rules(ends=frozenset([1]), least=1).applied(logits, [1], [0]) is logits
    assert logits.tolist() == [[2.0, -2.0, 1.0, 0.5]]


def as_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def message(**fields):
    return {"messages": [*ASK, {"role": "assistant", "content": "x"} | fields]}


FORMAT = {"response_format": {"type": "json_object"}}
CALLS = [{"id": "a", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]
REFUSED = [
    ({"tools": [CLOCK, CLOCK]}, "tools", "the same name"),
    ({"tools": [{"type": "custom"}]}, "tools[0].type", 'must be "function"'),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "a name of"),
    ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice", "not in tools"),
    ({"tool_choice": "required"}, "tool_choice", "goes with tools"),
    ({"tools": [CLOCK], "tool_choice": ["required"]}, "tool_choice", "must be"),
    ({"top_logprobs": 2}, "top_logprobs", "goes with logprobs"),
    ({"min_tokens": 2, "stop": "x"}, "min_tokens", "leave one of them out"),
    ({"min_tokens": 2, **FORMAT}, "min_tokens", "leave one of them out"),
    ({"min_tokens": 20, "max_tokens": 10}, "min_tokens", "more than max_tokens"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "must be"),
    ({"logit_bias": {"1": 101}}, "logit_bias", "must be"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "need it"),
    ({"response_format": {"type": "yaml"}}, "response_format.type", "json_object"),
    (message(role="tool"), "messages[1].tool_call_id", "needs it"),
    (message(role="user", tool_calls=CALLS), "messages[1].tool_calls", "role assistant"),
    (message(content=None), "messages[1].content", "is missing"),
    (message(name="Bob"), "messages[1].name", "role tool"),
    (
        message(tool_calls=[CALLS[0] | {"function": {"name": "clock", "arguments": "[1]"}}]),
        "messages[1].tool_calls[0].function.arguments",
        "a JSON object, as text",
    ),
]


@pytest.mark.parametrize(("change", "param", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_go_together_is_refused_by_name(change, param, sentence):
    with pytest.raises(ApiError) as found:
        parse(ChatRequest, json.dumps({"model": "m", "messages": ASK} | change).encode())
    assert (found.value.status, found.value.param) == (400, param)
    assert sentence in str(found.value)


@pytest.mark.parametrize(
    ("fields", "param", "sentence"),
    [
        ({"response_format": as_format({"not": {}})}, "response_format", "not"),
        ({"response_format": as_format({"type": "strange"})}, "response_format", "strange"),
        ({"response_format": as_format({"x-guidance": {"lenient": True}, "not": {}})}, "response_format", "not"),
        ({"logit_bias": {"5000": 1}}, "logit_bias", "from 0 to 303"),
        ({"extra_body": {"stop_token_ids": [5000]}}, "stop_token_ids", "from 0 to 303"),
    ],
)  # fmt: skip
def test_what_the_model_cannot_do_is_refused_by_name(client, openai, fields, param, sentence):
    with pytest.raises(openai.BadRequestError, match=sentence) as found:
        chat(client, **fields)
    assert found.value.param == param


def test_a_model_without_a_place_for_tools_says_so(openai, checkpoint, tmp_path):
    server = ServedHere(checkpoint, tmp_path)
    try:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0) as client:
            with pytest.raises(openai.BadRequestError, match="no place for tools") as found:
                chat(client, tools=[CLOCK])
            assert found.value.param == "tools"
    finally:
        server.close()
