"""An attention policy of one's own: the first tokens and the most recent ones. No file of the package changes.

python examples/own_policy.py
"""

from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import kvdrive
from kvdrive.policies import Entry, register
from kvdrive.policies.base import share
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.parameters import Mask, Parameters

FIRST = 4


class Ends(DrivePolicy):
    """Attention to the first 4 tokens and to the last `ratio` of all (StreamingLLM, Xiao et al., ICLR 2024)."""

    name: ClassVar[str] = "ends"

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, pending: int = 0) -> Parameters:
        """What the drive is asked for: `tokens` are on it, `pending` more come along and are attended to anyway."""
        recent = max(share(tokens + pending, self.ratio) - pending, 0)
        kept = np.zeros(tokens, np.bool_)
        kept[:FIRST] = kept[max(tokens - recent, 0) :] = True
        return Parameters(valid=kept if valid is None else kept & valid)

    def bytes_needed(self, tokens: int, head_dim: int, row_bytes: int) -> int:
        """Bytes of K and V that a step would read if single rows could be read."""
        return 2 * min(FIRST + share(tokens, self.ratio), tokens) * row_bytes


register("ends", Entry(Ends, "the first tokens and the most recent ones", "d"))

folder = Path(__file__).resolve().parents[1] / "models" / "mini"
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer("def read_all(path):\n    " * 20, return_tensors="pt").input_ids
for attention, ratio in (("exact", Fraction(1)), ("ends", Fraction(1, 8)), ("ends", Fraction(1))):
    with kvdrive.attach(model, "emulator", attention, ratio):
        answer = model.generate(ids, max_new_tokens=16, do_sample=False)
    print(f"{attention} {ratio}: {tokenizer.decode(answer[0, ids.shape[1] :])!r}")
