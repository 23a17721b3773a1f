"""What models think: read from answers as it comes, asked for by templates' own names, sent as each protocol has it."""

from contextlib import closing

import anthropic
import openai
import pytest
from agent_requests import TEMPLATE, WEATHER
from served_here import ServedHere
from transformers import AutoTokenizer

from kvdrive.generation import conversation
from kvdrive.server.call_reader import reader_of
from kvdrive.server.calls import Call, Thought
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import taken
from kvdrive.server.harmony import HarmonyReader
from kvdrive.server.protocol import ChatRequest
from kvdrive.server.replays import Parts, rest_of
from kvdrive.server.thoughts import FORMATS, ThoughtReader, template_options, thoughts_of
from kvdrive.server.tool_formats import format_of

# Earlier turns have no thoughts, the last one has; `enable_thinking` false writes empty ones before the answer.
THINKS = (
    TEMPLATE.replace(
        "[{{ m.role }}]{{ m.content }}",
        "[{{ m.role }}]"
        "{% if m.role == 'assistant' and loop.last %}<think>{{ m.reasoning_content }}</think>\n{% endif %}"
        "{{ m.content.split('</think>')[-1].lstrip() }}",
    )
    .replace("{% endfor %}\n{% endfor %}", "{% endfor %}<end>\n{% endfor %}")
    .replace(
        "[assistant]{% endif %}",
        "[assistant]{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
    )
)
BEGUN = TEMPLATE.replace("[assistant]{% endif %}", "[assistant]<think>\n{% endif %}") + "{# </think> #}"
THINK = FORMATS[0]


def read(reader, text, size):
    found = [piece for at in range(0, len(text), size) for piece in reader.put(text[at : at + size])] + reader.end()
    thought = "".join(one.text for one in found if isinstance(one, Thought))
    return thought, "".join(one for one in found if isinstance(one, str))


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "begun", "thought", "said"),
    [
        ("<think>\nA <b> and </thin\n</think>\n\nSo  it is.\n", False, "A <b> and </thin", "So  it is.\n"),
        (" \n<think>A</think>B", False, "A", "B"),
        ("<think></think>B", False, "", "B"),
        ("A\n</think>\nB", True, "A", "B"),
        ("A is cut", True, "A is cut", ""),
        ("<think>A is cut ", False, "A is cut", ""),
        ("B <think>C</think>", False, "", "B <think>C</think>"),
        ("<thin", False, "", "<thin"),
        ("", True, "", ""),
    ],
)
def test_thoughts_stand_before_the_answer(text, begun, thought, said, size):
    assert read(ThoughtReader(THINK, begun=begun), text, size) == (thought, said)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_channel_of_thoughts_is_thought(size):
    text = (
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Said."
    )
    assert read(HarmonyReader(), text, size) == ("One.\n\nTwo.", "Said.")


def test_the_format_is_seen_from_the_template():
    assert thoughts_of(THINKS) is thoughts_of(BEGUN) is THINK
    assert thoughts_of(TEMPLATE) is thoughts_of("") is None
    assert THINK.begun("[assistant]<think>\n")
    assert not THINK.begun("[assistant]<think>\n\n</think>\n\n")


def chat(**fields):
    return taken(ChatRequest, {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})


@pytest.mark.parametrize(
    ("template", "fields", "thinks", "options"),
    [
        (THINKS, {}, None, {}),
        (THINKS, {"reasoning_effort": "none"}, None, {"enable_thinking": False}),
        (THINKS, {"chat_template_kwargs": {"enable_thinking": True}}, None, {"enable_thinking": True}),
        (THINKS, {}, False, {"enable_thinking": False}),
        (BEGUN, {}, True, {}),
        (TEMPLATE, {}, False, {}),
        ("Reasoning: {{ reasoning_effort }}", {"reasoning_effort": "low"}, None, {"reasoning_effort": "low"}),
        ("{% if thinking is defined %}", {"chat_template_kwargs": {"thinking": True}}, None, {"thinking": True}),
    ],
)
def test_a_template_is_asked_what_it_knows(template, fields, thinks, options):
    assert template_options(template, chat(**fields), thinks, in_channels=False) == options


@pytest.mark.parametrize(
    ("template", "fields", "thinks", "param"),
    [
        (TEMPLATE, {"reasoning_effort": "low"}, None, "reasoning_effort"),
        (THINKS, {"reasoning_effort": "high"}, None, "reasoning_effort"),
        ("{{ reasoning_effort }}", {"reasoning_effort": "xhigh"}, None, "reasoning_effort"),
        (TEMPLATE, {"chat_template_kwargs": {"enable_thinking": False}}, None, "chat_template_kwargs.enable_thinking"),
        (THINKS, {"chat_template_kwargs": {"thinking": False}}, None, "chat_template_kwargs.thinking"),
        (TEMPLATE, {}, True, "thinking"),
    ],
)
def test_what_a_template_does_not_know_is_refused_by_name(template, fields, thinks, param):
    with pytest.raises(ApiError, match=param) as refused:
        template_options(template, chat(**fields), thinks, in_channels=False)
    assert (refused.value.param, refused.value.code) == (param, "unsupported_parameter")


def test_a_call_behind_thoughts_is_read():
    thoughts, calls = ThoughtReader(THINK, begun=False), reader_of(format_of(THINKS))
    text = '<think>I call.</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    first, *rest = thoughts.put(text)
    assert first == Thought("I call.")
    (call,) = [one for piece in rest for one in calls.put(piece) if one]
    assert isinstance(call, Call)


@pytest.mark.parametrize("template", [THINKS, BEGUN])
@pytest.mark.parametrize("sent", [{}, {"reasoning_content": "Well.", "thinking": "Well."}])
def test_an_answer_is_cut_out_though_its_thoughts_are_not_written_again(tools_checkpoint, template, sent):
    tokenizer = AutoTokenizer.from_pretrained(tools_checkpoint)
    tokenizer.chat_template = template
    said = {"role": "assistant", "content": "Yes.", **sent}
    messages = [{"role": "user", "content": "Rain?"}, said, {"role": "user", "content": "Sure?"}]
    text = conversation.as_text(tokenizer, messages)
    rest = rest_of(tokenizer, Parts(None, messages, [], text), 2)
    assert rest is not None
    assert text.endswith(f"[assistant]Yes.{rest}")


def test_a_call_is_cut_out_though_its_thoughts_are_not_written_again(tools_checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(tools_checkpoint)
    tokenizer.chat_template = THINKS
    function = {"name": "weather", "arguments": {"city": "Oslo", "days": 1}}
    call = {"id": "call_1", "type": "function", "function": function}
    said = {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "Well."}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
    messages = [{"role": "user", "content": "Rain?"}, said, result]
    text = conversation.as_text(tokenizer, messages, [WEATHER])
    rest = rest_of(tokenizer, Parts(format_of(TEMPLATE), messages, [WEATHER], text), 2)
    assert rest == "<end>\n[tool]sunny<end>\n[assistant]"


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    """The prompt begins thoughts, so that all that the small model writes before the marker is thought."""
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"), context=1024)
    server.model.tokenizer.chat_template = BEGUN
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
        yield client


SAID = [{"role": "user", "content": "Rain?"}]
WISH = {"model": "tiny", "temperature": 0, "max_tokens": 12}


def test_thoughts_are_no_content_of_a_chat(client):
    answer = client.chat.completions.create(messages=SAID, **WISH)
    message = answer.choices[0].message
    assert message.reasoning_content
    assert message.content == ""
    assert answer.usage.completion_tokens_details.reasoning_tokens == 12
    deltas = [one.choices[0].delta for one in client.chat.completions.create(messages=SAID, stream=True, **WISH)]
    assert "".join(getattr(one, "reasoning_content", "") for one in deltas) == message.reasoning_content
    assert not any(one.content for one in deltas)


def test_thoughts_are_an_item_of_a_response(client):
    wish = {"model": "tiny", "input": "Rain?", "temperature": 0, "max_output_tokens": 12}
    response = client.responses.create(**wish)
    (item,) = response.output
    assert (item.type, item.content[0].type) == ("reasoning", "reasoning_text")
    assert response.output_text == ""
    assert response.usage.output_tokens_details.reasoning_tokens == 12
    events = list(client.responses.create(stream=True, **wish))
    deltas = [one.delta for one in events if one.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == item.content[0].text == events[-1].response.output[0].content[0].text
    again = client.responses.create(
        model="tiny",
        input=[{"role": "user", "content": "Rain?"}, item.to_dict(), {"role": "user", "content": "Sure?"}],
        max_output_tokens=1,
    )
    assert again.status == "incomplete"
    follows = client.responses.create(
        model="tiny", input="Sure?", previous_response_id=response.id, max_output_tokens=1
    )
    assert follows.usage.input_tokens > response.usage.input_tokens


def test_thoughts_are_blocks_where_a_client_of_anthropic_asks(server):
    wish = {"model": "tiny", "max_tokens": 12, "messages": SAID, "extra_body": {"temperature": 0}}
    with closing(anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="x", max_retries=0)) as client:
        assert client.messages.create(**wish).content == []
        (block,) = client.messages.create(thinking={"type": "adaptive"}, **wish).content
        assert (block.type, block.signature) == ("thinking", "")
        with client.messages.stream(thinking={"type": "enabled", "budget_tokens": 1024}, **wish) as stream:
            assert stream.get_final_message().content[0].thinking == block.thinking
        with client.messages.stream(**wish) as stream:
            assert stream.get_final_message().content == []
        back = [*SAID, {"role": "assistant", "content": [block.to_dict(), {"type": "text", "text": "Yes."}]}, *SAID]
        assert client.messages.create(**wish | {"messages": back}).stop_reason == "max_tokens"


@pytest.mark.parametrize("sent", [{}, {"reasoning_content": True}])
def test_thoughts_are_found_whether_or_not_they_are_sent_back(client, sent):
    """All tokens of the first turn but the last, whose K and V were never computed."""
    said = [{"role": "user", "content": f"Rain, {len(sent)}?"}]
    first = client.chat.completions.create(messages=said, **WISH)
    message = first.choices[0].message
    thought = {"reasoning_content": message.reasoning_content} if sent else {}
    said += [{"role": "assistant", "content": message.content, **thought}, {"role": "user", "content": "Sure?"}]
    second = client.chat.completions.create(messages=said, **WISH)
    whole = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= whole - 1


def test_an_answer_with_a_grammar_has_no_thoughts(client):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes"]}}}
    answer = client.chat.completions.create(messages=SAID, response_format=schema, model="tiny")
    assert answer.choices[0].message.content == '"yes"'
