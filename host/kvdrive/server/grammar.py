"""Grammars that answers keep to: at each step, only tokens remain that a text of the grammar can go on with.

The grammars and their masks are llguidance's. A schema that it does not implement whole is refused, never approximated.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from kvdrive.errors import InputError, KvdriveError
from kvdrive.generation.tokenizer import Spelled, Tokenizer

Schema = Mapping[str, Any]
# As models write JSON in one line. Free white space would let a small model write nothing else.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_LIMITS = LLParserLimits(verbose_errors=False)
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_HIGHEST = np.where(_BITS, np.inf, -np.inf).astype(np.float32)  # [256, 8]: of the logits of each byte of a mask


class GrammarError(KvdriveError):
    """The grammar takes more steps or memory than llguidance allows."""


class Grammar:
    """One answer's grammar and its place in it. Not safe to use from two threads at the same time.

    What may come next is computed as soon as the place is known, in another thread, while the model computes the
    logits. No array is allocated for a token. `vocabulary`: the length of the logits. `waiting`: takes what is to be
    computed.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: int, waiting: SimpleQueue[Grammar]) -> None:
        self.complete = False  # True if nothing can follow what was taken
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._waiting = waiting
        self._mask = allocate_token_bitmask(1, vocabulary)
        self._bytes = self._mask.view(np.uint8)[0]
        self._rows = np.empty(len(self._bytes), np.intp)  # of _HIGHEST, for each byte of the mask
        self._highest = np.empty((len(self._bytes), 8), np.float32)
        self._bounds = self._highest.reshape(-1)[:vocabulary]  # what each logit may be at most
        self._failure: GrammarError | None = None
        self._computing = threading.Lock()  # held from `_begin` until the end of `compute`
        self._begin()

    def copy(self) -> Grammar:
        """For another answer, which is at the same place."""
        self._wait()
        return Grammar(self._matcher.deep_copy(), self._vocabulary, self._waiting)

    def restrict(self, logits: torch.Tensor) -> None:
        """Change logits float32 [1, vocabulary] to -inf for each token that the grammar excludes here. Raises
        GrammarError.

        A token that ends the text remains where the text may end.
        """
        self._wait()
        self._check()
        values = logits.numpy()[0]
        np.minimum(values, self._bounds, out=values)

    def take(self, token: int) -> None:
        """The answer goes on with `token`, which `restrict` has left. Raises GrammarError."""
        self._wait()
        self._matcher.consume_token(token)
        self._check()
        self.complete = bool(self._matcher.is_stopped())
        if not self.complete:
            self._begin()

    def compute(self) -> None:
        """Find what may come next. In the thread that serves `waiting`; llguidance lets others run meanwhile."""
        try:
            fill_next_token_bitmask(self._matcher, self._mask, 0)
            self._rows[:] = self._bytes
            np.take(_HIGHEST, self._rows, axis=0, out=self._highest, mode="clip")
        except BaseException as error:  # what Rust panics with is no Exception, and the thread has other grammars
            self._failure = GrammarError(f"the grammar of this answer failed: {error}")
        finally:
            self._computing.release()

    def _begin(self) -> None:
        self._computing.acquire()
        self._waiting.put(self)

    def _wait(self) -> None:
        """Wait until `compute` has ended. Raises GrammarError."""
        with self._computing:
            if self._failure is not None:
                raise self._failure

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = str(self._matcher.get_error()).splitlines()[0]
            raise GrammarError(f"the grammar of this answer is too large: {reason}")


class Grammars:
    """Makes grammars for answers of one model. `vocabulary`: the length of its logits. Safe to call concurrently."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._stop_ids = sorted(stop_ids)
        self._made: LLTokenizer | None = None
        self._making = threading.Lock()
        self._waiting: SimpleQueue[Grammar] = SimpleQueue()

    def json(self, schema: Schema) -> Grammar:
        """A text that is a JSON value of this schema, in one line. Raises InputError."""
        return self._grammar(LLMatcher.grammar_from_json_schema(json.dumps(_spaced(schema))))

    def lark(self, text: str) -> Grammar:
        """A grammar in llguidance's variant of Lark (`schema_in_lark`, `marker`). Raises InputError."""
        return self._grammar(LLMatcher.grammar_from_lark(text))

    def marker(self, text: str) -> str:
        """`text` in a grammar of Lark: as one token where the vocabulary has one for it, as letters elsewhere."""
        token = self._tokenizer.get_added_vocab().get(text)
        return json.dumps(text) if token is None else f"<[{token}]>"

    def _grammar(self, source: str) -> Grammar:
        wrong, found = LLMatcher.validate_grammar_with_warnings(source, self._llguidance, limits=_LIMITS)
        if wrong or found:
            raise InputError(found[0].splitlines()[0])
        return Grammar(
            LLMatcher(self._llguidance, source, log_level=0, limits=_LIMITS), self._vocabulary, self._waiting
        )

    @property
    def _llguidance(self) -> LLTokenizer:
        """Made for the first answer that needs it: a large vocabulary takes a second."""
        with self._making:
            if self._made is None:
                if not self._stop_ids:
                    raise InputError("this model has no token that ends a text, so no answer can keep to a grammar")
                try:
                    self._made = _translated(self._tokenizer, self._vocabulary, self._stop_ids)
                except ValueError as error:
                    raise InputError(f"this model's tokenizer is not supported with grammars: {error}") from error
                threading.Thread(target=_compute_all, args=(self._waiting,), name="grammars", daemon=True).start()
            return self._made


def _compute_all(waiting: SimpleQueue[Grammar]) -> None:
    while True:
        waiting.get().compute()


def _translated(tokenizer: Tokenizer, vocabulary: int, ends: list[int]) -> LLTokenizer:
    """A tokenizer as llguidance has it. Raises ValueError for one that it does not support."""
    if isinstance(tokenizer, Spelled):
        return LLTokenizer(TokenizerWrapper(tokenizer.pieces()), n_vocab=vocabulary, eos_token=ends)
    return from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=ends)


def schema_in_lark(schema: Schema) -> str:
    """A JSON value of this schema, in one line, in a grammar of Lark."""
    return "%json " + json.dumps(_spaced(schema))


def _spaced(schema: Schema) -> Schema:
    """The schema with our options for llguidance, and none of the client's."""
    return {**schema, "x-guidance": _SPACING}
