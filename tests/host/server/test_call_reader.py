"""Calls of tools in answers as families of models write them, in pieces of any size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdrive.errors import InputError
from kvdrive.server.call_reader import CallReader
from kvdrive.server.tool_formats import FORMATS, Call, format_of

BY_NAME = {one.name.split(",")[0]: one for one in FORMATS}
WEATHER = ("weather", {"city": "Zürich", "days": 3})
TIME = ("time", {})
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich", "days": 3}}\n</tool_call>'
TAGGED = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)
# (format, answer, what is said, what is called)
ANSWERS = [
    ("Hermes", HERMES, "", [WEATHER]),
    ("Hermes", f"I look.\n{HERMES}\n" + '<tool_call>{"name": "time"}</tool_call>', "I look.", [WEATHER, TIME]),
    ("Hermes", '<tool_call>\n{"name": "time", "arguments": "{}"}\n</tool_call>', "", [TIME]),
    ("Hermes", "a < b, and <tool is no call", "a < b, and <tool is no call", []),
    ("Hermes", "<tool_call>\nnot JSON\n</tool_call> and so on", "<tool_call>\nnot JSON\n</tool_call> and so on", []),
    ("Hermes", '<tool_call>\n{"name": "time", "arg', '<tool_call>\n{"name": "time", "arg', []),
    ("Hermes", '<tool_call>{"name": "a b"}</tool_call>', '<tool_call>{"name": "a b"}</tool_call>', []),
    ("Hermes", '<tool_call>{"name": "a", "arguments": [1]}</tool_call>', None, []),
    ("Hermes", '<tool_call>{"name": "time\\n"}</tool_call>', None, []),
    ("Hermes", f"<tool_call>{'[' * 100_000}</tool_call>", None, []),
    ("Qwen3-Coder", TAGGED, "", [WEATHER]),
    ("Qwen3-Coder", "<tool_call><function=time></function></tool_call>", "", [TIME]),
    ("Qwen3-Coder", "<tool_call><function=a>what</function></tool_call>", None, []),
    ("Mistral", '[TOOL_CALLS]weather[ARGS]{"city": "Zürich", "days": 3}[TOOL_CALLS]time[ARGS]{}', "", [WEATHER, TIME]),
    ("Mistral", "[TOOL_CALLS]weather[ARGS]{", "[TOOL_CALLS]weather[ARGS]{", []),
    (
        "Mistral of 2024",
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Zürich", "days": 3}}, {"name": "time"}]',
        "",
        [WEATHER, TIME],
    ),
    ("Llama 3", '{"name": "weather", "parameters": {"city": "Zürich", "days": 3}}', "", [WEATHER]),
    ("Llama 3", '<|python_tag|>{"name": "time", "parameters": {}}', "", [TIME]),
    ("Llama 3", '{"name": 5}', '{"name": 5}', []),
    ("Llama 3", 'It is {"name": "time"}.', 'It is {"name": "time"}.', []),
]


def read(name, pieces, **options):
    """What is said, the calls, and everything in its order."""
    reader = CallReader(BY_NAME[name], **options)
    found = [one for piece in pieces for one in reader.put(piece)] + reader.end()
    said = "".join(one for one in found if isinstance(one, str))
    return said, [(one.name, json.loads(one.arguments)) for one in found if isinstance(one, Call)], found


@pytest.mark.parametrize(("name", "answer", "said", "called"), ANSWERS, ids=range(len(ANSWERS)))
def test_what_is_said_and_what_is_called(name, answer, said, called):
    for size in (1, 3, len(answer)):
        found = read(name, [answer[at : at + size] for at in range(0, len(answer), size)])
        assert found[:2] == (answer if said is None else said, called)


@given(st.data())
def test_pieces_of_any_size_give_the_same(data):
    name, answer, *_ = data.draw(st.sampled_from([one for one in ANSWERS if len(one[1]) < 1000]))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(answer)))))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert read(name, pieces)[:2] == read(name, [answer])[:2]


@given(st.text("<tool_cal>/ \n{}x", max_size=60))
def test_text_without_a_call_is_said_as_it_is(text):
    for name in BY_NAME:
        assert read(name, text)[:2] == (text, []) or "<tool_call>" in text


def test_text_is_said_as_soon_as_it_cannot_be_a_call():
    reader = CallReader(BY_NAME["Hermes"])
    assert reader.put("so <tool") == ["so"]
    assert reader.put("s are") == [" <tools are"]
    assert reader.put(" ") == []
    assert reader.end() == [" "]


def test_calls_behind_the_first_one_are_left_out_where_one_is_wanted():
    assert read("Hermes", [HERMES, HERMES], several=False)[1] == [WEATHER]


def test_every_call_has_an_id_of_its_own():
    calls = [one for one in read("Hermes", [HERMES, HERMES])[2] if isinstance(one, Call)]
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ tools }}<tool_call>", "Hermes"),
        ("{{ tools }}<tool_call><function=example>", "Qwen3-Coder"),
        ("{{ tools }}[TOOL_CALLS]", "Mistral of 2024"),
        ("{{ tools }}[TOOL_CALLS]x[ARGS]", "Mistral"),
        ('{{ tools }}<|start_header_id|>{"name": ..., "parameters": ...}', "Llama 3"),
    ],
)
def test_a_template_shows_its_format(template, name):
    assert format_of(template) is BY_NAME[name]


@pytest.mark.parametrize(
    ("template", "sentence"),
    [(None, "no place for tools"), ("{{ messages }}", "no place for tools"), ("{{ tools }}", "is not known here")],
)
def test_a_template_without_a_known_format_is_refused(template, sentence):
    with pytest.raises(InputError, match=sentence):
        format_of(template)
