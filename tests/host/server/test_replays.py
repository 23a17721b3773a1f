"""What the model wrote is found again without a session's name, however the client spells it in the next turn."""

import json
from contextlib import closing

import pytest
from agent_requests import ASK, TEMPLATE, WEATHER
from served_here import ServedHere
from transformers import AutoTokenizer

from kvdrive.generation import conversation
from kvdrive.server.replays import Parts, Replays, as_message, chain_of, link, rest_of
from kvdrive.server.tenants import Tenants
from kvdrive.server.tool_formats import format_of

MUST = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}


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


def chat(client, messages, **fields):
    return client.chat.completions.create(model="tiny", messages=messages, **(MUST | {"temperature": 0} | fields))


def respelled(arguments):
    """Keys in another order, in several lines."""
    return json.dumps(dict(reversed(json.loads(arguments).items())), indent=1)


def history(messages, answer, spell):
    (call,) = answer.choices[0].message.tool_calls
    function = {"name": call.function.name, "arguments": spell(call.function.arguments)}
    said = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }
    return [*messages, said, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]


def cached(answer):
    return answer.usage.prompt_tokens_details.cached_tokens


def whole(answer):
    return answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_call_is_found_however_it_is_spelled(client):
    """All tokens of the first turn but the last, whose K and V were never computed. What is edited is not found."""
    messages = [{"role": "user", "content": "Rain, and how do you spell it?"}]
    first = chat(client, messages)
    (call,) = first.choices[0].message.tool_calls
    assert respelled(call.function.arguments) != call.function.arguments
    second = chat(client, history(messages, first, respelled))
    assert cached(second) >= whole(first) - 1
    third = chat(client, history(history(messages, first, respelled), second, respelled))
    assert cached(third) >= whole(second) - 1
    edited = chat(client, history(messages, first, lambda _: '{"days": 5, "city": "Bergen"}'))
    assert cached(edited) < whole(first) - 5


def test_a_streamed_call_is_found(client):
    messages = [{"role": "user", "content": "Rain, streamed?"}]
    chunks = list(chat(client, messages, stream=True, stream_options={"include_usage": True}))
    (call,) = (one for chunk in chunks for choice in chunk.choices for one in choice.delta.tool_calls or ())
    said = {
        "id": call.id,
        "type": "function",
        "function": {"name": "weather", "arguments": respelled(call.function.arguments)},
    }
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    second = chat(client, [*messages, {"role": "assistant", "tool_calls": [said]}, result])
    usage = chunks[-1].usage
    assert cached(second) >= usage.prompt_tokens + usage.completion_tokens - 1


def test_blocks_of_anthropic_are_found(server, anthropic):
    url, tool = (
        f"http://127.0.0.1:{server.port}",
        {"name": "weather", "input_schema": WEATHER["function"]["parameters"]},
    )
    wish = {"model": "tiny", "max_tokens": 200, "tools": [tool], "tool_choice": {"type": "tool", "name": "weather"}}
    messages = [{"role": "user", "content": "Rain, in blocks?"}]
    with closing(anthropic.Anthropic(base_url=url, api_key="key-of-alice", max_retries=0)) as client:
        first = client.messages.create(messages=messages, **wish)
        (call,) = first.content
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(reversed(call.input.items()))}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
        messages += [{"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
        second = client.messages.create(messages=messages, **wish)
    before = first.usage.input_tokens + first.usage.cache_read_input_tokens + first.usage.output_tokens
    assert second.usage.cache_read_input_tokens >= before - 1


def test_another_tenant_begins_with_nothing_of_it(client):
    messages = [{"role": "user", "content": "Rain, in secret?"}]
    first = chat(client, messages)
    turns = history(messages, first, respelled)
    assert cached(chat(client.with_options(api_key="key-of-bob"), turns)) == 0
    assert cached(chat(client, turns)) >= whole(first) - 1


@pytest.mark.parametrize(
    ("template", "rest"),
    [
        (TEMPLATE, "[tool]sunny[assistant]"),  # ends behind the call
        (
            TEMPLATE.replace("{% endfor %}\n{% endfor %}", "{% endfor %}<end>\n{% endfor %}"),
            "<end>\n[tool]sunny<end>\n[assistant]",
        ),
        (  # it writes the beginning of an answer behind one that ends the conversation, too
            TEMPLATE.replace("{% if add_generation_prompt %}[assistant]{% endif %}", "[assistant]"),
            "[tool]sunny[assistant]",
        ),
        (TEMPLATE.replace("{%- for m", "{{ messages | length }}{%- for m"), None),  # the beginning depends on the end
        (TEMPLATE.replace("</tool_call>", "</call>"), None),  # no end is known
    ],
)
def test_an_answer_is_cut_out_of_what_the_template_writes(tools_checkpoint, template, rest):
    tokenizer = AutoTokenizer.from_pretrained(tools_checkpoint)
    tokenizer.chat_template = template
    messages = [*messages_of('{"a": 1}'), {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    text = conversation.as_text(tokenizer, messages, [WEATHER])
    assert rest_of(tokenizer, Parts(format_of(TEMPLATE), messages, [WEATHER], text), 2) == rest


def messages_of(arguments, content=""):
    return [*ASK, as_message(content, [("call_1", "f", arguments)])]


def test_conversations_are_the_same_but_for_spelling():
    first = chain_of(messages_of('{"a": 1, "b": {"c": 2, "d": 3}}'), [])
    assert chain_of(messages_of('{"b": {"d": 3,\n"c": 2}, "a": 1}'), []) == first
    assert chain_of(messages_of('{"a": 1, "b": {"c": 2, "d": 3}}', "<think>Well.</think>\n"), []) == first
    assert chain_of(messages_of('{"a": 1, "b": {"c": 2, "d": 4}}'), [])[-1] != first[-1]
    assert chain_of(messages_of('{"a": 1, "b": {"c": 2, "d": 3}}', "So"), [])[-1] != first[-1]
    assert chain_of(messages_of('{"a": 1, "b": {"c": 2, "d": 3}}'), [WEATHER])[-1] != first[-1]
    assert link(first[1], as_message(" ", [("call_1", "f", '{"b": {"c": 2, "d": 3}, "a": 1}')])) == first[-1]
    user = [{"role": "user", "content": "x"}], [{"role": "user", "content": " x"}]
    assert chain_of(user[0], []) != chain_of(user[1], [])


def test_the_longest_conversation_is_found_and_the_room_is_bounded():
    replays, chain = Replays(most_answers=2, most_tokens=10), [b"0", b"1", b"2", b"3"]
    replays.keep("alice", b"1", [1, 2])
    replays.keep("alice", b"2", [1, 2, 3])
    assert replays.find("alice", chain) == (2, [1, 2, 3])
    assert replays.find("alice", chain[:2]) == (1, [1, 2])
    assert replays.find("bob", chain) is None
    replays.keep("alice", b"3", [5])
    assert replays.find("alice", chain[:2]) is None
    replays.keep("alice", b"1", range(9))
    assert replays.find("alice", chain) == (3, [5])
    replays.keep("alice", b"1", range(11))
    assert replays.find("alice", chain) is None
