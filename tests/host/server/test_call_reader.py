"""Calls of tools in answers as families of models write them, in pieces of any size."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvdrive.errors import InputError
from kvdrive.server.call_reader import CallReader, reader_of
from kvdrive.server.calls import Call, Thought, Tool
from kvdrive.server.tool_formats import FORMATS, format_of

BY_NAME = {one.name.split(",")[0]: one for one in FORMATS}
WEATHER = ("weather", {"city": "Zürich", "days": 3})
TIME = ("time", {})
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich", "days": 3}}\n</tool_call>'
TAGGED = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)
THOUGHT = "<|channel|>analysis<|message|>They ask for the weather.<|end|><|start|>assistant"
CALLED = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Zürich", "days": 3}'
QUOTED = '<|tool_call>call:weather{city:<|"|>Zürich<|"|>,days:3}<tool_call|>'
ESCAPED = "<start_function_call>call:weather{city:<escape>Zürich<escape>,days:3}<end_function_call>"
DEEP = ("f", {"a": [1, -2.5, True, None, "x, }"], "b": {"c": "", "d": {}}, "e": "word"})
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
    ("GPT-OSS", f"{THOUGHT}{CALLED}<|call|>", "", [WEATHER]),
    ("GPT-OSS", f"{THOUGHT}{CALLED}", "", [WEATHER]),  # the mark of the end is no text where it ends the answer
    ("GPT-OSS", f"{THOUGHT}<|channel|>final<|message|>It rains.<|return|>", "It rains.", []),
    ("GPT-OSS", f"{THOUGHT}<|channel|>final<|message|>It rains.", "It rains.", []),
    (
        "GPT-OSS",
        f"{THOUGHT}<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{CALLED}<|call|>",
        "I look.",
        [WEATHER],
    ),
    (
        "GPT-OSS",
        "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>Then.<|return|>",
        "First.\n\nThen.",
        [],
    ),
    (
        "GPT-OSS",
        "<|start|>assistant to=functions.time<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
        "",
        [TIME],
    ),
    ("GPT-OSS", "<|channel|>commentary to=functions.time<|constrain|>json<|message|>{}<|call|>", "", [TIME]),
    ("GPT-OSS", "<|channel|>commentary to=functions.time<|message|>{]<|call|>", "{]", []),
    ("GPT-OSS", f"{CALLED}<|call|><|start|>assistant{CALLED}<|call|>", "", [WEATHER, WEATHER]),
    ("GPT-OSS", '{"a": 1}', '{"a": 1}', []),  # a format was asked for
    ("GPT-OSS", f"{THOUGHT}<|channel|>fin", "", []),
    ("Gemma 4", QUOTED, "", [WEATHER]),
    ("Gemma 4", f"I look.{QUOTED}<|tool_call>call:time{{}}<tool_call|>", "I look.", [WEATHER, TIME]),
    (
        "Gemma 4",
        '<|tool_call>call:f{a:[1,-2.5,true,null,<|"|>x, }<|"|>],b:{c:<|"|><|"|>,<|"|>d<|"|>:{}},e:word}<tool_call|>',
        "",
        [DEEP],
    ),
    ("Gemma 4", '<|tool_call>call:f{a:<|"|>x}<tool_call|>', None, []),
    ("Gemma 4", "<|tool_call>call:f{a}<tool_call|>", None, []),
    ("Gemma 4", "<|tool_call>call:f{} and<tool_call|>", None, []),
    ("Gemma 4", "<|tool_call>f{}<tool_call|>", None, []),
    ("Gemma 4", f"<|tool_call>call:f{{a:{'[' * 1000}}}<tool_call|>", None, []),
    ("FunctionGemma", ESCAPED, "", [WEATHER]),
    ("FunctionGemma", "<start_function_call>call:time{}<end_function_call>", "", [TIME]),
    ("Llama 3", '{"name": "weather", "parameters": {"city": "Zürich", "days": 3}}', "", [WEATHER]),
    ("Llama 3", '<|python_tag|>{"name": "time", "parameters": {}}', "", [TIME]),
    ("Llama 3", '{"name": 5}', '{"name": 5}', []),
    ("Llama 3", 'It is {"name": "time"}.', 'It is {"name": "time"}.', []),
]


def read(name, pieces, **options):
    """What is said, the calls, and everything in its order."""
    reader = reader_of(BY_NAME[name], **options)
    found = [one for piece in pieces for one in reader.put(piece)] + reader.end()
    said = "".join(one for one in found if isinstance(one, str))
    return said, [(one.name, json.loads(one.arguments)) for one in found if isinstance(one, Call)], found


@pytest.mark.parametrize(("name", "answer", "said", "called"), ANSWERS, ids=range(len(ANSWERS)))
def test_what_is_said_and_what_is_called(name, answer, said, called):
    for size in (1, 3, len(answer)):
        found = read(name, [answer[at : at + size] for at in range(0, len(answer), size)])
        assert found[:2] == (answer if said is None else said, called)


@settings(deadline=None)
@given(st.data())
def test_pieces_of_any_size_give_the_same(data):
    name, answer, *_ = data.draw(st.sampled_from([one for one in ANSWERS if len(one[1]) < 1000]))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(answer)))))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert read(name, pieces)[:2] == read(name, [answer])[:2]


@settings(deadline=None)
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
        ("{{ tools }}<|channel|>commentary <|constrain|>json", "GPT-OSS"),
        ('{{ tools }}<|tool_call>call:<|"|>', "Gemma 4"),
        ("{{ tools }}<start_function_call>call:<escape>", "FunctionGemma"),
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


def test_thoughts_of_a_message_in_pieces_are_never_said():
    reader = reader_of(BY_NAME["GPT-OSS"])
    text = f"{THOUGHT}<|channel|>final<|message|>It rains."
    thought = [piece for letter in text[:-9] for piece in reader.put(letter)]
    assert all(isinstance(piece, Thought) for piece in thought)
    assert reader.put(text[-9:]) == ["It rains."]


def test_a_call_that_gpt_oss_must_make_has_its_header():
    grammar = BY_NAME["GPT-OSS"].must_call([Tool("time")], json.dumps, several=True)
    assert '"commentary to=functions.time " "<|constrain|>" "json" "<|message|>" %json' in grammar


@pytest.mark.parametrize("name", ["Llama 3", "Gemma 4", "Qwen3-Coder", "GPT-OSS"])
def test_calls_that_cannot_be_told_from_json_are_no_choice_beside_it(name):
    with pytest.raises(InputError, match="only where tool_choice is none"):
        BY_NAME[name].may_call([Tool("time")], json.dumps, {"type": "object"}, several=False)


def test_gemma_cannot_be_made_to_call():
    with pytest.raises(InputError, match="send tool_choice auto"):
        BY_NAME["Gemma 4"].must_call([Tool("time")], json.dumps, several=False)
