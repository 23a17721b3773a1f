"""The training text as tokens: modules of the Python standard library that are not held out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from kvdrive.eval.library import Module, is_held_out, module_names, read

VOCABULARY = 2048
END_OF_TEXT = "<|end|>"


def training_modules() -> list[Module]:
    """All modules except those held out; neighbours in a package stay together."""
    return [read(name) for name in module_names() if not is_held_out(name)]


def digest(texts: Sequence[Module]) -> str:
    """SHA-256 over names and texts."""
    total = hashlib.sha256()
    for module in texts:
        total.update(f"{module.name}\0{module.text}\0".encode())
    return total.hexdigest()


def train_tokenizer(texts: Sequence[Module]) -> Tokenizer:
    """Byte-level BPE of VOCABULARY entries; digits stay single, so that numbers can be copied."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((module.text for module in texts), trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[Module]) -> NDArray[np.uint16]:
    """The tokens of all texts. An END_OF_TEXT precedes each text."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    parts = [np.array([end, *one.ids], np.uint16) for one in tokenizer.encode_batch([m.text for m in texts])]
    return np.concatenate(parts)
