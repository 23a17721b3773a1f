"""Fields of requests: each is implemented, changes nothing, is harmless, or is refused by name with a sentence."""

import json
import logging
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvdrive.server.answer_requests import MOST_CHARACTERS, AnswerRequest, RenderRequest
from kvdrive.server.anthropic_messages import CountRequest, MessagesRequest
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import parse
from kvdrive.server.protocol import HARMLESS, NEUTRAL, ChatRequest, CompletionRequest, SlotRequest
from kvdrive.server.requests import REQUESTS
from kvdrive.server.responses_requests import ResponseRequest
from kvdrive.server.token_requests import DetokenizeRequest, TokenizeRequest

COMPLETION = {"model": "m", "prompt": "x"}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
GOOD = {
    CompletionRequest: COMPLETION,
    ChatRequest: CHAT,
    ResponseRequest: {"model": "m", "input": "x"},
    MessagesRequest: CHAT | {"max_tokens": 5},
    CountRequest: CHAT,
    SlotRequest: {"filename": "a"},
    TokenizeRequest: {"content": "x"},
    DetokenizeRequest: {"tokens": [1]},
    AnswerRequest: CHAT,
    RenderRequest: {"texts": ["x"]},
}
KINDS = [CompletionRequest, ChatRequest]


def taken(kind, change, **options):
    return parse(kind, json.dumps(GOOD[kind] | change).encode(), **options)


def answered(kind, change):
    """The request, or its refusal."""
    try:
        return taken(kind, change)
    except ApiError as error:
        return error


def refused(kind, change, **options):
    with pytest.raises(ApiError) as found:
        taken(kind, change, **options)
    assert found.value.status == 400
    return found.value


@pytest.mark.parametrize(
    ("kind", "change", "param"),
    [
        (CompletionRequest, {"tools": [{"type": "function"}]}, "tools"),
        (CompletionRequest, {"tool_choice": "required"}, "tool_choice"),
        (ChatRequest, {"functions": [{"name": "f"}]}, "functions"),
        (CompletionRequest, {"top_logprobs": 5}, "top_logprobs"),
        (CompletionRequest, {"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        (CompletionRequest, {"reasoning_effort": "low"}, "reasoning_effort"),
        (ChatRequest, {"guided_json": {}}, "guided_json"),
        (ChatRequest, {"suffix": "x"}, "suffix"),
        (ChatRequest, {"echo": True}, "echo"),
        (ChatRequest, {"best_of": 2}, "best_of"),
        (ChatRequest, {"best_of": True}, "best_of"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(kind, change, param):
    error = refused(kind, change)
    assert (error.param, error.code) == (param, "unsupported_parameter")
    assert re.match(rf"{param} is not supported by this server: leave it out", str(error))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in kind.neutral])
def test_a_value_that_changes_nothing_is_accepted_and_another_one_is_not(kind, name):
    plain = taken(kind, {})
    for value in (*kind.neutral[name], None):
        assert taken(kind, {name: value}) == plain
    assert refused(kind, {name: {"another": ["value"]}}).param == name


@pytest.mark.parametrize("kind", KINDS)
def test_harmless_fields_are_accepted_with_any_value(kind):
    for value in ("a", 5, {"a": 1}, None, True):
        assert taken(kind, dict.fromkeys(HARMLESS, value)) == taken(kind, {})


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_unknown_field_is_refused_by_its_name(kind):
    error = refused(kind, {"max_tokns": 5})
    assert (error.param, error.code) == ("max_tokns", "unknown_parameter")
    assert "leave it out" in str(error)
    assert taken(kind, {"max_tokns": None}) == taken(kind, {})


def test_unknown_fields_inside_are_refused_by_their_place():
    message = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "x", "mood": 1}]}
    assert refused(ChatRequest, {"messages": [message]}).param == "messages[0].content[1].mood"
    assert refused(ChatRequest, {"stream": True, "stream_options": {"a": 1}}).param == "stream_options.a"


def test_warn_ignores_unknown_names_only(caplog):
    """At any depth, with one line in the log. What is known and missing is refused as ever."""
    change = {"max_tokns": 5, "messages": [{"role": "user", "content": "x", "mood": "Bob"}]}
    with caplog.at_level(logging.WARNING):
        assert taken(ChatRequest, change, ignore_unknown=True) == taken(ChatRequest, {})
    (record,) = caplog.records
    assert "max_tokns, mood" in record.getMessage()
    assert refused(ChatRequest, change | {"functions": [1]}, ignore_unknown=True).param == "functions"
    assert refused(ChatRequest, change | {"temperature": 9}, ignore_unknown=True).param == "temperature"


@pytest.mark.parametrize(
    ("kind", "change", "param", "sentence"),
    [
        (CompletionRequest, {"temperature": 3}, "temperature", "temperature must be a number from 0 to 2, not 3"),
        (CompletionRequest, {"temperature": "1"}, "temperature", 'temperature must be a number from 0 to 2, not "1"'),
        (CompletionRequest, {"temperature": True}, "temperature", "temperature must be a number from 0 to 2, not true"),
        (CompletionRequest, {"max_tokens": -1}, "max_tokens", "max_tokens must be a whole number, 0 or more, not -1"),
        (
            ChatRequest,
            {"repetition_penalty": 5e-324},
            "repetition_penalty",
            "repetition_penalty must be a number from 0.01",
        ),
        (CompletionRequest, {"seed": 2**64}, "seed", f"seed must be a whole number of 64 bits, not {2**64}"),
        (CompletionRequest, {"stop": ["a"] * 5}, "stop", "stop must be up to 4 texts of 1 to 256 characters"),
        (CompletionRequest, {"stop": ["a", 5]}, "stop[1]", "stop must be a text, or a list of texts; its entry [1]"),
        (CompletionRequest, {"prompt": ["a", 5]}, "prompt", "prompt must be a text, a list of token numbers, or"),
        (CompletionRequest, {"n": 65}, "n", "n must be a whole number from 1 to 64, not 65"),
        (CompletionRequest, {"prompt": [1, True]}, "prompt", "prompt must be a text, a list of token numbers, or"),
        (CompletionRequest, {"prompt": None}, "prompt", "prompt is missing: it must be a text"),
        (CompletionRequest, {"session": "a/b"}, "session", "session must be a name of letters, digits"),
        (ChatRequest, {"messages": []}, "messages", "messages must be a list of one message or more"),
        (ChatRequest, {"messages": [5]}, "messages[0]", "messages must be a list of one message or more"),
        (ChatRequest, {"messages": [{"role": "user"}]}, "messages[0].content", "messages[0].content is missing"),
        (ChatRequest, {"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role", "messages[0].role must be"),
        (RenderRequest, {"texts": "x"}, "texts", "texts must be a list of up to 64 texts"),
        (RenderRequest, {"texts": ["x"] * 65}, "texts", "texts must be a list of up to 64 texts"),
        (RenderRequest, {"texts": ["x" * MOST_CHARACTERS, "x"]}, "texts", "texts have more than 262144 characters"),
        (AnswerRequest, {"max_tokens": 0}, "max_tokens", "max_tokens must be a whole number, 1 or more, not 0"),
        (SlotRequest, {"filename": "../x"}, "filename", "filename must be a name of letters, digits"),
    ],
)
def test_a_wrong_value_is_a_sentence_that_says_what_to_send(kind, change, param, sentence):
    error = refused(kind, change)
    assert error.param == param
    assert str(error).startswith(sentence)


@pytest.mark.parametrize(
    ("kind", "change", "param"),
    [
        (CompletionRequest, {"stream_options": {"include_usage": True}}, "stream_options"),
        (CompletionRequest, {"session": "a", "kv_uri": "kvdrive:b"}, "kv_uri"),
        (CompletionRequest, {"n": 3, "best_of": 2}, "best_of"),
        (CompletionRequest, {"best_of": 2, "stream": True}, "best_of"),
        (CompletionRequest, {"n": 10, "prompt": ["a"] * 7}, "prompt"),
        (CompletionRequest, {"suffix": "b", "echo": True}, "suffix"),
        (CompletionRequest, {"suffix": "b", "prompt": [1, 2]}, "suffix"),
        (CompletionRequest, {"session": "a", "prompt": ["a", "b"]}, "session"),
        (ChatRequest, {"session": "a", "n": 2}, "session"),
        (ChatRequest, {"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(kind, change, param):
    assert refused(kind, change).param == param


def test_the_same_wish_twice_is_one():
    assert taken(CompletionRequest, {"session": "a", "kv_uri": "kvdrive:a"}).session_name == "a"
    assert taken(ChatRequest, {"max_tokens": 3, "max_completion_tokens": 3}).limit == ("max_completion_tokens", 3)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff",
        b"",
        b"[" * 5000 + b"]" * 5000,
        b'{"model": "m", "prompt": "x", "seed": ' + b"9" * 5000 + b"}",
        b'{"model": "m", "prompt": "x", "temperature": NaN}',
        b'{"model": "m", "prompt": "\\ud800"}',
    ],
)
def test_a_body_that_is_no_json_is_said_so(body):
    with pytest.raises(ApiError, match="the body is not JSON: ") as found:
        parse(CompletionRequest, body)
    assert (found.value.status, found.value.code) == (400, "invalid_json")


@pytest.mark.parametrize("body", [b"[1]", b"5", b"null", b'"a"'])
def test_a_body_that_is_no_object_is_said_so(body):
    with pytest.raises(ApiError, match="must be a JSON object"):
        parse(ChatRequest, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = sorted({name for kind in KINDS for name in kind.model_fields} | {*NEUTRAL, *HARMLESS, "role", "unknown"})
WORDS = re.compile(r"pydantic|validation|Input should|Extra inputs|type=|should be a valid")


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(REQUESTS), change=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3))
def test_any_fields_are_taken_or_refused_in_our_words(kind, change):
    """What is accepted has every wish in it: the values of implemented fields are those that were sent."""
    found = answered(kind, change)
    if isinstance(found, ApiError):
        assert found.status == 400
        assert not WORDS.search(str(found))
        assert found.param
        return
    for name, value in change.items():
        if value is None or name in kind.harmless:
            continue
        assert name in kind.known() or value in kind.neutral[name]
        if name in ("temperature", "top_p", "top_k", "seed", "session", "kv_uri", "max_tokens", "stream"):
            assert getattr(found, name) == value
