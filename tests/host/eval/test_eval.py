"""Perplexity, retrieval and the policy sweep on tiny random models. The drive is compared with stock transformers."""

import json
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, DynamicCache, LlamaConfig, LlamaForCausalLM

from kvdrive.choices import KV_FORMATS
from kvdrive.errors import InputError
from kvdrive.eval import library, perplexity, report, retrieval, tasks
from kvdrive.eval.compared import chosen_policies, ways
from kvdrive.eval.scoring import Scores
from kvdrive.eval.statistics import over_windows, share_interval
from kvdrive.eval.sweep import questions, sweep
from kvdrive.eval.wording import Chat, Comments, style_of
from kvdrive.plugins.transformers import attach
from kvdrive.policies import make_policy
from kvdrive.targets.emulator import Emulator

MINI = Path(__file__).resolve().parents[3] / "models/mini"
VOCABULARY, LAYERS, KV_HEADS, D = 128, 2, 2, 32


def encode(text):
    return list(text.encode())


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=KV_HEADS, head_dim=D, initializer_range=0.2, pad_token_id=0, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def text_of(tokens, seed=3):
    return np.random.default_rng(seed).integers(1, VOCABULARY, tokens)


# ---- text and tasks ----


def test_held_out_modules_are_a_twentieth_of_the_library():
    held_out = library.held_out_modules()
    assert 0.03 < len(held_out) / len(library.module_names()) < 0.07
    assert library.is_held_out(held_out[0].name)
    assert [len(m.text) for m in held_out] == sorted((len(m.text) for m in held_out), reverse=True)


@pytest.fixture(scope="module")
def chat():
    tokenizer = AutoTokenizer.from_pretrained(MINI)
    tokenizer.chat_template = (
        "<user>{{ messages[0]['content'] }}</user>{% if add_generation_prompt %}<model>{% endif %}"
    )
    return Chat(tokenizer)


@pytest.mark.parametrize("worded", ["comments", "chat"])
@pytest.mark.parametrize("task", tasks.TASKS)
def test_a_case_has_the_asked_length_and_its_answer_stands_at_its_depth(task, worded, chat):
    text = np.full(3000, ord("#"))
    for depth in (0.0, 0.5, 1.0):
        style = chat if worded == "chat" else Comments()
        case = tasks.TASKS[task](encode, text, 1000, depth, np.random.default_rng(4), style)
        prompt, answer = bytes(case.prompt.tolist()).decode(), bytes(case.answer.tolist()).decode()
        values = re.findall(r"\d{5}", answer)
        assert len(case.prompt) == 1000
        assert [prompt.count(value) for value in values] == [1] * len(values)
        assert abs(prompt.index(values[0]) / 1000 - case.depth) < 0.3
        assert (prompt + answer).endswith(f" {answer}")


def test_lines_are_all_different_and_one_of_them_is_asked_for():
    case = tasks.lines(encode, np.full(3000, ord("#")), 2000, 0.5, np.random.default_rng(5), count=30)
    prompt = bytes(case.prompt.tolist()).decode()
    names = [part.split(":")[0] for part in prompt.split("line ")[1:]]
    assert len(set(names[:-1])) == 30
    assert names[-1] in names[:-1]


def test_an_answer_about_two_documents_needs_both():
    case = tasks.documents(encode, np.full(3000, ord("#")), 1001, 0.5, np.random.default_rng(5))
    prompt, answer = bytes(case.prompt.tolist()).decode(), bytes(case.answer.tolist()).decode()
    said = dict(re.findall(r"# Document (\S+): the pass key is (\d+)", prompt))
    asked = re.search(r"documents (\S+) and (\S+)\?", prompt)
    assert answer == f"{said[asked[1]]} and {said[asked[2]]}.\n"
    halves = prompt[:500], prompt[500:]
    assert [half.count("the pass key is ") for half in halves] == [1, 1]


def test_questions_in_a_chat_template_count_the_digits_only(chat):
    case = tasks.documents(encode, np.full(3000, ord("#")), 1001, 0.5, np.random.default_rng(5), chat)
    prompt, answer = bytes(case.prompt.tolist()).decode(), bytes(case.answer.tolist()).decode()
    said = re.findall(r"The special magic number for (\w+) is (\d+)\.\n", prompt)
    assert [prompt.index(value) > 500 for _, value in said] == [False, True]
    assert prompt.startswith("<user>Read the text below")
    assert prompt.endswith(f"</user><model>The special magic number for {said[0][0]} is ")
    assert answer == f"{said[0][1]}.\nThe special magic number for {said[1][0]} is {said[1][1]}"
    assert "".join(tasks.that_count(list(answer), case.counted)) == said[0][1] + said[1][1]


def test_the_words_fit_the_tokenizer(chat):
    without, having = SimpleNamespace(chat_template=None), SimpleNamespace(chat_template="{{ messages }}")
    assert isinstance(style_of(without), Comments)
    assert isinstance(style_of(having), Chat)


@pytest.mark.parametrize("template", ["<user></user>", "{{ messages[0]['content'] }} {{ messages[0]['content'] }}"])
def test_a_template_that_hides_or_repeats_the_text_is_refused(template):
    tokenizer = AutoTokenizer.from_pretrained(MINI)
    tokenizer.chat_template = template
    with pytest.raises(InputError, match="chat template"):
        Chat(tokenizer).passkey("12345")


def test_cases_repeat_themselves():
    build = lambda seed: tasks.cases(["passkey", "lines"], encode, text_of(2000), 800, [0.1, 0.9], 2, seed)  # noqa: E731
    first, again, other = build(1), build(1), build(2)
    assert len(first) == 8
    assert all(np.array_equal(a.prompt, b.prompt) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a.prompt, b.prompt) for a, b in zip(first, other, strict=True))


def test_too_little_text_and_unknown_tasks_are_named():
    with pytest.raises(InputError, match="name more text"):
        tasks.cases(["passkey"], encode, text_of(100), 800, [0.5], 1, 1)
    with pytest.raises(InputError, match="choose among passkey, lines, documents"):
        tasks.cases(["riddle"], encode, text_of(100), 80, [0.5], 1, 1)


def test_windows_do_not_overlap_and_stay_within_one_document():
    documents = [np.arange(1000), 1000 + np.arange(250), 2000 + np.arange(80)]
    found = perplexity.windows(documents, 90, 10, 12)
    assert [int(window[0]) for window in found[:4]] == [0, 1000, 100, 1100]
    assert all(len(window) == 100 and window[-1] - window[0] == 99 for window in found)
    with pytest.raises(InputError, match="12 windows of 100 tokens, not 13"):
        perplexity.windows(documents, 90, 10, 13)


# ---- scores ----


def test_perplexity_is_that_of_one_long_forward_pass(model):
    text = text_of(60)
    (row,) = perplexity.by_context(model, [text], [50], 10, DynamicCache)
    with torch.no_grad():
        logits = model(torch.from_numpy(text)[None]).logits[0, 49:-1]
    want = torch.nn.functional.cross_entropy(logits, torch.from_numpy(text[50:]))
    assert row.nats == pytest.approx(float(want), abs=1e-5)
    assert row.perplexity == pytest.approx(np.exp(float(want)), rel=1e-5)


def test_a_shorter_context_sees_the_last_tokens_only(model):
    text = text_of(60)
    short, long = perplexity.by_context(model, [text], [5, 50], 10, DynamicCache)
    (alone,) = perplexity.by_context(model, [text[-15:]], [5], 10, DynamicCache)
    assert short.nats == alone.nats
    assert short.nats != long.nats


def test_a_case_counts_only_when_the_whole_answer_is_right(model):
    prompt = text_of(30)
    with torch.no_grad():
        ids = model.generate(torch.from_numpy(prompt)[None], max_new_tokens=4, do_sample=False)
    right = ids[0, 30:].numpy()
    wrong = right.copy()
    wrong[-1] = (wrong[-1] + 1) % VOCABULARY
    both = [tasks.Case("t", prompt, right, 0.5), tasks.Case("t", prompt, wrong, 0.5)]
    (row,) = retrieval.accuracy(model, both, DynamicCache)
    assert (row.cases, row.exact, row.tokens) == (2, 0.5, 7 / 8)
    forgiven = tasks.Case("t", prompt, wrong, 0.5, [True, True, True, False])
    (row,) = retrieval.accuracy(model, [forgiven], DynamicCache)
    assert (row.exact, row.tokens) == (1, 1)


def test_divergence_and_agreement_by_hand():
    shares = [torch.tensor(rows, dtype=torch.float64) for rows in ([[0.5, 0.25, 0.25]] * 2, [[0.25, 0.5, 0.25]] * 2)]
    shares[1][1] = shares[0][1]
    exact, other = (Scores.of(one.log(), np.array([0, 2])) for one in shares)
    assert exact.nats == pytest.approx([np.log(2), np.log(4)])
    assert other.first.tolist() == [False, False]
    assert other.divergence(exact) == pytest.approx([0.25 * np.log(2), 0])
    assert other.agrees(exact).tolist() == [False, True]
    assert exact.divergence(exact).tolist() == [0, 0]


def test_intervals_of_means_and_of_shares():
    mean, error = over_windows([[1.0, 3.0], [4.0]])
    assert (mean, error) == (3.0, 1.0)
    assert over_windows([[1.0, 3.0]]) == (2.0, None)
    assert share_interval(5, 10) == pytest.approx([0.2366, 0.7634], abs=1e-4)
    assert share_interval(0, 5) == pytest.approx([0, 0.4345], abs=1e-4)


def test_the_drive_scores_as_transformers_does(model, target):
    text = text_of(140)
    (stock,) = perplexity.by_context(model, [text], [120], 20, DynamicCache)
    with attach(model, target) as attached:
        (ours,) = perplexity.by_context(model, [text], [120], 20, attached.cache)
    assert ours.nats == pytest.approx(stock.nats, abs=2e-3)
    assert target.stats().attention_jobs == 20 * LAYERS * KV_HEADS


# ---- policies ----

RATIOS = [Fraction(1), Fraction(1, 2), Fraction(1, 8)]


def test_the_choice_of_policies():
    named = [(policy.name, policy.ratio) for policy in chosen_policies("sparf,exact", RATIOS)]
    assert named == [("exact", 1), ("sparf", Fraction(1, 2)), ("sparf", Fraction(1, 8))]
    assert len(chosen_policies("all", RATIOS)) == 1 + 5 * 2
    with pytest.raises(InputError, match="ratios below 1"):
        chosen_policies("sparf", [Fraction(1)])


def test_limits_of_what_is_left_unread(model, target):
    compared = ways(chosen_policies("exact,groups", [Fraction(1, 2), Fraction(1, 8)], [0.5, 0.001]), ["f16"])
    points = {point.ratio: point for point in sweep(model, target, compared, questions([text_of(900)], 8, []))}
    assert list(points) == ["1", "1/2", "1/8", "1/8, 0.5 unread", "1/8, 0.001 unread"]
    fixed, loose, tight = (points[label] for label in list(points)[2:])
    assert fixed.bytes_read <= loose.bytes_read <= tight.bytes_read
    assert fixed.bytes_read < tight.bytes_read
    assert tight.kl < fixed.kl
    with pytest.raises(InputError, match="add groups"):
        chosen_policies("exact", RATIOS, [0.1])


def test_units_of_other_sizes(model, target):
    compared = ways(chosen_policies("exact,groups", [Fraction(1, 8)], units=[32, 128]), ["f16"])
    points = {point.ratio: point for point in sweep(model, target, compared, questions([text_of(900)], 8, []))}
    assert list(points) == ["1", "1/8", "1/8, unit 128"]
    assert points["1/8"].bytes_read < points["1/8, unit 128"].bytes_read  # the last unit is read, and it is larger
    with pytest.raises(InputError, match="no unit of 48 tokens"):
        chosen_policies("groups", RATIOS, units=[48])
    with pytest.raises(InputError, match="add groups"):
        chosen_policies("exact,sparf", RATIOS, units=[64])


@pytest.fixture(scope="module")
def swept(model, tmp_path_factory):
    torch.set_num_threads(1)
    asked = questions([text_of(400)], 8, tasks.cases(["passkey"], encode, text_of(900), 300, [0.5], 1, 1))
    with Emulator(tmp_path_factory.mktemp("sweep") / "drive.kv", "fast", capacity_bytes=1 << 26) as drive:
        yield sweep(model, drive, ways(chosen_policies("all", RATIOS), ["f16"]), asked), asked, drive


def test_each_policy_scores_what_it_scores_alone(model, target, swept):
    points, asked, _ = swept
    for point in points:
        if point.counted_by != "drive":
            continue
        with attach(model, target, make_policy(point.policy, Fraction(point.ratio))) as attached:
            (row,) = perplexity.by_context(
                model, [np.concatenate([asked[0].context, asked[0].target])], [392], 8, attached.cache
            )
        assert row.perplexity == point.perplexity


def test_bytes_fall_with_the_ratio(swept):
    points, asked, _ = swept
    exact, rest = points[0], points[1:]
    held = sum(len(q.context) + i for q in asked for i in range(len(q.target)))
    steps = sum(len(q.target) for q in asked)
    assert exact.bytes_needed == 2 * LAYERS * KV_HEADS * 2 * D * held / steps
    assert exact.steps == steps
    for half, eighth in zip(rest[::2], rest[1::2], strict=True):
        assert (half.policy, half.ratio, eighth.ratio) == (eighth.policy, "1/2", "1/8")
        assert eighth.bytes_needed < half.bytes_needed < exact.bytes_needed
        assert eighth.bytes_read <= half.bytes_read
    assert {p.policy: p.counted_by for p in points}["h2o"] == "kept rows"


def test_policies_are_compared_with_exact_attention(swept):
    exact, rest = swept[0][0], swept[0][1:]
    assert (exact.kl, exact.agreement, exact.added_nats) == (0, 1, 0)
    for point in rest:
        assert point.kl > 1e-6
        assert point.added_nats == pytest.approx(np.log(point.perplexity / exact.perplexity), abs=1e-9)
        assert point.interval["passkey"][0] <= point.accuracy["passkey"] <= point.interval["passkey"][1]
    assert rest[1].kl > rest[0].kl


def test_the_reference_need_not_be_among_the_policies(model, target, swept):
    _, asked, _ = swept
    (alone,) = sweep(model, target, ways(chosen_policies("local", [Fraction(1, 8)]), ["f16"]), asked)
    assert alone in swept[0]


def test_the_drive_is_empty_afterwards(swept):
    assert swept[2]._drive.sessions() == []


def test_results_as_json_table_and_picture(swept, tmp_path):
    points = swept[0]
    report.write_json(tmp_path / "new" / "eval.json", {"points": [point.as_dict() for point in points]})
    again = report.points_of(json.loads((tmp_path / "new" / "eval.json").read_text()))
    assert again == points
    assert report.sweep_table(points).row_count == len(points)
    report.sweep_picture(tmp_path / "eval.png", points, "tiny")
    assert (tmp_path / "eval.png").read_bytes()[:4] == b"\x89PNG"


def test_formats_and_policies_are_crossed(model, target):
    asked = questions([text_of(400)], 8, [])
    compared = ways(chosen_policies("exact,sparf,groups,local", [Fraction(1, 2)]), list(KV_FORMATS))
    named = [(way.policy.name, way.kv_format) for way in compared]
    assert named == [(name, kind) for kind in KV_FORMATS for name in ("exact", "sparf", "groups", "local")]
    points = sweep(model, target, compared, asked)
    read = {(p.policy, p.kv_format): p.bytes_read for p in points}
    assert read["exact", "f16"] / read["exact", "int8"] > 1.8
    assert read["exact", "f16"] / read["exact", "int4"] > 3
    assert read["exact", "f16"] / read["exact", "fp8"] > 1.9
    assert read["local", "int8"] < read["exact", "int8"]
    needed = {(p.policy, p.kv_format): p.bytes_needed for p in points}
    for policy in ("groups", "sparf"):
        assert needed[policy, "int4"] < needed[policy, "int8"] < needed[policy, "f16"] < needed["exact", "f16"]
    assert read["sparf", "f16"] > read["sparf", "int8"] > read["sparf", "int4"]
    kl = {p.kv_format: p.kl for p in points if p.policy == "exact"}
    assert 0 == kl["f16"] < kl["int8"] < kl["fp8"] < kl["int4"]
    alone = sweep(model, target, compared[:4], asked)
    assert points[:4] == alone, "a context computed once for all formats gives the same answers"
    assert len({p.perplexity for p in points if p.policy == "exact"}) == len(KV_FORMATS)
    with pytest.raises(InputError, match="add f16"):
        ways(chosen_policies("h2o", [Fraction(1, 2)]), ["int8"])
