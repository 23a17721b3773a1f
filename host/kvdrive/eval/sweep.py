"""Attention policies at several ratios on the same questions: what each costs in accuracy and reads in bytes.

A context is prefilled once, with exact attention. Every policy of the drive continues from there, and the drive counts
the bytes that it reads. Each policy that runs on the host prefills its own cache; its bytes are the rows that it keeps.
Exact attention over K and V in binary16 answers first, because all answers are compared with its.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from transformers import DynamicCache, PreTrainedModel

from kvdrive import abi
from kvdrive.eval.perplexity import OnStep
from kvdrive.eval.points import TEXT, Answer, Answers, Point, Question, Way
from kvdrive.eval.scoring import Scores, prefill, score
from kvdrive.eval.tasks import Case, Tokens
from kvdrive.kvcache import formats
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.nvme.rows import joined
from kvdrive.plugins.support import decoder_config, layers_in_memory
from kvdrive.plugins.transformers import attach
from kvdrive.policies import make_policy
from kvdrive.targets.base import Target

_EVERYTHING_KEPT = abi.AppendOption.APPEND_SPARSE | abi.AppendOption.APPEND_GROUPS


def questions(texts: Sequence[Tokens], targets: int, cases: Sequence[Case]) -> list[Question]:
    """Windows of text, of which the last `targets` tokens are rated, and retrieval cases."""
    rated = [Question(TEXT, text[:-targets], text[-targets:]) for text in texts]
    return rated + [Question(case.task, case.prompt, case.answer, case.counted) for case in cases]


def sweep(
    model: PreTrainedModel,
    target: Target,
    compared: Sequence[Way],
    asked: Sequence[Question],
    on_step: OnStep | None = None,
    known: MutableMapping[str, Answer] | None = None,
) -> list[Point]:
    """Every way, `fitted` to the model, on every question; `on_step` is called after each answer.

    Answers in `known` are not computed again; new ones are put there at once. Points come in the order of `compared`.
    Raises UnsupportedError, RangeError, CommandError, TargetError.
    """
    known = {} if known is None else known
    shape = kv_shape(model)
    answers = [Answers(way) for way in compared]
    for number, question in enumerate(asked):
        waiting = [way for way in compared if way.place(number, question) not in known]
        for way, answer in _answers(model, target, question, waiting):
            known[way.place(number, question)] = answer
            if on_step:
                on_step()
        for one in answers:
            one.add(question, known[one.way.place(number, question)], shape)
    return [one.point() for one in answers]


def _answers(
    model: PreTrainedModel, target: Target, question: Question, waiting: Sequence[Way]
) -> Iterator[tuple[Way, Answer]]:
    """Answer in each of the ways. Those in the drive and over the same format share one context."""
    if not waiting:
        return
    on_host = [way for way in waiting if not way.policy.in_drive]
    formats_used = dict.fromkeys(["f16", *(way.kv_format for way in waiting)])
    context = _Context(model, question.context, shared=len(formats_used) > 1)
    exact: Scores | None = None
    for kv_format in formats_used:
        with context.in_drive(target, kv_format) as cache:
            if exact is None:
                cache.batch.part.shared.policy = make_policy("exact")
                exact, read = rate_question(model, question, cache)
                cache.crop(-len(question.target))
            for way in waiting:
                if way.is_reference and kv_format == "f16":
                    yield way, Answer.of(exact, exact, read)
                elif way.policy.in_drive and way.kv_format == kv_format:
                    cache.batch.part.shared.policy = way.policy
                    scores, count = rate_question(model, question, cache)
                    yield way, Answer.of(scores, exact, count)
                    cache.crop(-len(question.target))
    assert exact is not None
    for way in on_host:
        with attach(model, target, way.policy) as attached:
            cache = attached.cache()
            prefill(model, question.context, cache)
            scores, count = rate_question(model, question, cache)
            yield way, Answer.of(scores, exact, count)


class _Context:
    """Tokens that sessions in several formats begin with. `shared`: K and V are computed once, for all of them."""

    def __init__(self, model: PreTrainedModel, tokens: Tokens, shared: bool) -> None:
        self._model, self._tokens = model, tokens
        self._computed: DynamicCache | None = None
        if shared and not layers_in_memory(model):  # a layer in memory does not keep the K and V that it was given
            self._computed = DynamicCache()
            prefill(model, tokens, self._computed)

    @contextmanager
    def in_drive(self, target: Target, kv_format: str) -> Iterator[Any]:
        """A cache with the context, whose sessions serve every policy over the format."""
        with attach(self._model, target, "sparf", kv_format=kv_format) as attached:
            cache = attached.cache()
            cache.batch.part.shared.append_options = joined(_EVERYTHING_KEPT, formats.named(kv_format))
            if self._computed is None:
                prefill(self._model, self._tokens, cache)
            else:
                for index, layer in enumerate(self._computed.layers):
                    cache.update(layer.keys, layer.values, index)
            yield cache


def rate_question(model: PreTrainedModel, question: Question, cache: HfCache) -> tuple[Scores, int]:
    """The scores of the question's target after its context, and the bytes of K and V that were read for it."""
    before = cache.batch.statistics.bytes_read()
    scores = score(model, int(question.context[-1]), question.target, cache)
    return scores, cache.batch.statistics.bytes_read() - before


def kv_shape(model: PreTrainedModel) -> tuple[int, int, int]:
    """Layers, KV heads per layer and head dimension."""
    config = decoder_config(model)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, heads, head_dim
