"""Grammars that answers keep to: at each step, only tokens remain that a text of the grammar can go on with.

The grammars and their masks are llguidance's. A schema that it does not implement whole is refused, never approximated.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
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


class GrammarError(KvdriveError):
    """The grammar takes more steps or memory than llguidance allows."""


class Grammar:
    """One answer's grammar and its place in it. Not safe to use from two threads at the same time."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._mask = allocate_token_bitmask(1, vocabulary)

    def copy(self) -> Grammar:
        """For another answer, which is at the same place."""
        return Grammar(self._matcher.deep_copy(), self._vocabulary)

    def restrict(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits float32 [1, vocabulary] with -inf for each token that the grammar excludes here. Raises GrammarError.

        A token that ends the text remains where the text may end.
        """
        fill_next_token_bitmask(self._matcher, self._mask, 0)
        self._check()
        bits = np.unpackbits(self._mask.view(np.uint8), axis=-1, bitorder="little")[:, : logits.shape[-1]]
        return logits.masked_fill(torch.from_numpy(bits == 0), -torch.inf)

    def take(self, token: int) -> None:
        """The answer goes on with `token`, which `restrict` has left. Raises GrammarError."""
        self._matcher.consume_token(token)
        self._check()

    @property
    def complete(self) -> bool:
        """True if nothing can follow what was taken."""
        return bool(self._matcher.is_stopped())

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
        return Grammar(LLMatcher(self._llguidance, source, log_level=0, limits=_LIMITS), self._vocabulary)

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
            return self._made


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
