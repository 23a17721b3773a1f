"""The comparison with transformers: an exact tie counts as equal, and the text behind it is compared as well."""

from pathlib import Path

import torch
from small_models import CONFIGS, prompts, random_model

from kvdrive.generation import batches
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.generate import greedy
from kvdrive.generation.task import verdicts

NEW = 10


def tied(at):
    """A model that rates its token number `at` and token 299 the same; its text, and another one that takes 299."""
    model, ids = random_model(CONFIGS["llama"]), prompts(1, 20)
    token = int(greedy(model, ids, NEW)[0, 20 + at])
    with torch.no_grad():
        model.lm_head.weight[299] = model.lm_head.weight[token]
    text = greedy(model, ids, NEW)[:, : 20 + at + 1]
    assert int(text[0, -1]) == token
    text[0, -1] = 299
    rest = greedy(model, text, NEW - at - 1)
    work = batches.Batch(ids, torch.ones_like(ids), NEW)
    return Checkpoint("tied", Path(), model, None), work, rest[0, 20:].tolist()


def said(found):
    report = {"check": vars(found), "verify": None, "options": {"attention": "exact"}}
    return next(verdicts(report))


def test_an_exact_tie_counts_as_equal_and_is_said():
    checkpoint, work, ours = tied(at=3)
    found = batches.compare_with_transformers(checkpoint, work, [ours])
    assert (found.identical, found.total, found.difference) == (NEW, NEW, None)
    assert found.ties >= 1
    assert f"{NEW}/{NEW}, {found.ties} of them exact ties, which count as equal" in said(found)


def test_a_difference_behind_a_tie_is_found():
    checkpoint, work, ours = tied(at=3)
    ours[6] = 5 if ours[6] != 5 else 7
    found = batches.compare_with_transformers(checkpoint, work, [ours])
    assert found.identical < NEW
    assert "new token 7" in found.difference
    assert "first difference" in said(found)


def test_a_text_that_ends_early_is_no_tie():
    checkpoint, work, ours = tied(at=3)
    found = batches.compare_with_transformers(checkpoint, work, [ours[:5]])
    assert found.difference == f"row 0 has 5 tokens, transformers {NEW}"
