"""Several answers to one request: choices, the likeliest of more, several prompts; and the prompt before an answer."""

import math
from itertools import pairwise

import pytest
import torch
from served_here import ServedHere
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvdrive.server.errors import ApiError
from kvdrive.server.infill import infilled
from kvdrive.server.prompts import Prompts

PROMPT = "The drive keeps the keys and the values of each token, and attends to them where they are."


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"), context=256, slots=4)
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(server, openai):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def tokenizer(tools_checkpoint):
    return AutoTokenizer.from_pretrained(tools_checkpoint)


def complete(client, **fields):
    return client.completions.create(model="tiny", **({"prompt": PROMPT, "max_tokens": 6, "seed": 5} | fields))


def test_choices_share_the_prompt_and_differ(server, client):
    """The first one is the answer of a request for one. The others fork the prompt, whose last token they compute."""
    messages = [{"role": "user", "content": "choices " + PROMPT}]
    options = {"model": "tiny", "messages": messages, "max_tokens": 6, "seed": 5, "temperature": 2}
    names = ["kvdrive_prompt_tokens_total", "kvdrive_cached_prompt_tokens_total"]
    before = [server.metric(name) for name in names]
    answer = client.chat.completions.create(n=3, **options)
    prompts, found = (server.metric(name) - was for name, was in zip(names, before, strict=True))
    size = answer.usage.prompt_tokens
    assert (prompts, found) == (3 * size, 2 * (size - 1) + answer.usage.prompt_tokens_details.cached_tokens)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    said = [choice.message.content for choice in answer.choices]
    assert len(set(said)) == 3
    assert answer.usage.completion_tokens == 18
    assert answer.usage.total_tokens == size + 18
    one = client.chat.completions.create(**options)
    assert (one.choices[0].message.content, one.usage.prompt_tokens) == (said[0], size)
    second = client.chat.completions.create(**(options | {"seed": 6}))
    assert second.choices[0].message.content == said[1]


def test_streamed_choices_have_their_index(client):
    options = {"n": 3, "temperature": 2, "logprobs": 1}
    whole = complete(client, **options)
    texts, reasons, chances, usage = {}, {}, {}, None
    for chunk in complete(client, stream=True, stream_options={"include_usage": True}, **options):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            chances.setdefault(choice.index, []).extend(choice.logprobs.token_logprobs if choice.logprobs else [])
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    assert texts == {choice.index: choice.text for choice in whole.choices}
    for choice in whole.choices:
        assert chances[choice.index] == pytest.approx(choice.logprobs.token_logprobs, abs=1e-4)
    assert set(reasons.values()) == {"length"}
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, 18)


def test_the_likeliest_of_more_candidates_are_sent(client):
    options = {"temperature": 2, "logprobs": 0}
    every = complete(client, n=4, **options)
    means = sorted((sum(one.logprobs.token_logprobs) / 6, one.text) for one in every.choices)
    best = complete(client, n=2, best_of=4, **options)
    assert [one.text for one in best.choices] == [text for _, text in means[:-3:-1]]
    assert [one.index for one in best.choices] == [0, 1]
    assert best.usage.completion_tokens == 24
    unscored = complete(client, n=2, best_of=4, temperature=2)
    assert [one.text for one in unscored.choices] == [one.text for one in best.choices]
    assert unscored.choices[0].logprobs is None


def test_several_prompts_are_answered_in_their_order(client, tokenizer):
    texts = ["one " + PROMPT, "two " + PROMPT]
    answer = complete(client, prompt=texts, n=2, temperature=0)
    alone = [complete(client, prompt=text, temperature=0) for text in texts]
    assert [one.index for one in answer.choices] == [0, 1, 2, 3]
    assert [one.text for one in answer.choices] == [one.choices[0].text for one in alone for _ in range(2)]
    assert answer.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)
    tokens = complete(client, prompt=[tokenizer(text)["input_ids"] for text in texts], temperature=0)
    assert [one.text for one in tokens.choices] == [one.choices[0].text for one in alone]


def test_the_prompt_is_said_before_the_answer(client, tokenizer):
    plain = complete(client, temperature=0)
    assert complete(client, temperature=0, echo=True).choices[0].text == PROMPT + plain.choices[0].text
    ids = tokenizer(PROMPT)["input_ids"]
    assert complete(client, prompt=ids, temperature=0, echo=True).choices[0].text == PROMPT + plain.choices[0].text
    pieces = [chunk.choices[0].text for chunk in complete(client, temperature=0, echo=True, stream=True)]
    assert pieces[0] == PROMPT
    assert "".join(pieces) == PROMPT + plain.choices[0].text


def test_tokens_of_the_prompt_have_their_chances(client, tools_checkpoint, tokenizer):
    """As evaluations ask for them: nothing is generated. Long enough for several calls of the model."""
    prompt = PROMPT + " " + PROMPT
    answer = complete(client, prompt=prompt, echo=True, logprobs=2, max_tokens=0, n=2)
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (0, "length")
    first, second = (choice.logprobs for choice in answer.choices)
    assert first == second
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    assert first.tokens == [tokenizer.decode(one) for one in ids[0]]
    assert len(ids[0]) > 64
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tools_checkpoint)(ids).logits[0].float().log_softmax(-1)
    wanted = [float(logits[place, token]) for place, token in enumerate(ids[0, 1:].tolist())]
    assert (first.token_logprobs[0], first.top_logprobs[0]) == (None, None)
    assert first.token_logprobs[1:] == pytest.approx(wanted, abs=0.02)
    assert all(
        max(top.values()) >= own for top, own in zip(first.top_logprobs[1:], first.token_logprobs[1:], strict=True)
    )
    assert first.text_offset[:2] == [0, len(first.tokens[0])]
    assert all(a <= b for a, b in pairwise(first.text_offset))
    more = complete(client, prompt=prompt, echo=True, logprobs=2, max_tokens=2, temperature=0).choices[0]
    assert more.logprobs.token_logprobs[: len(wanted) + 1] == first.token_logprobs
    assert len(more.logprobs.tokens) == len(wanted) + 3
    assert not any(math.isnan(one) for one in more.logprobs.token_logprobs[1:])


def test_a_prompt_is_computed_for_later_without_an_answer(client):
    prompt = "later " + PROMPT
    empty = complete(client, prompt=prompt, max_tokens=0)
    assert (empty.choices[0].text, empty.usage.completion_tokens) == ("", 0)
    after = complete(client, prompt=prompt + " And more.")
    assert after.usage.prompt_tokens_details.cached_tokens >= empty.usage.prompt_tokens - 1


def test_answers_with_grammars_are_apart(client):
    wanted = {"type": "json_object"}
    answer = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "x"}], n=3, seed=5, temperature=2, max_tokens=20,
        response_format=wanted,
    )  # fmt: skip
    assert all(choice.message.content.startswith("{") for choice in answer.choices)


def test_a_model_without_infill_tokens_refuses_a_suffix(client, openai):
    with pytest.raises(openai.BadRequestError, match="tokens for text between") as found:
        complete(client, suffix="x")
    assert found.value.param == "suffix"


@pytest.mark.parametrize("names", [("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), ("▁<PRE>", "▁<SUF>", "▁<MID>")])
def test_a_model_with_infill_tokens_reads_both_ends(tools_checkpoint, names):
    tokenizer = AutoTokenizer.from_pretrained(tools_checkpoint)
    prompts = Prompts(tokenizer, 100)
    with pytest.raises(ApiError):
        infilled(tokenizer, prompts, "a", "b")
    tokenizer.add_tokens(list(names))
    ids = infilled(tokenizer, prompts, "def f(", "):")
    before, between, behind = tokenizer.convert_tokens_to_ids(list(names))
    middle = ids.index(between)
    assert (ids[0], ids[-1]) == (before, behind)
    assert (tokenizer.decode(ids[1:middle]), tokenizer.decode(ids[middle + 1 : -1])) == ("def f(", "):")
