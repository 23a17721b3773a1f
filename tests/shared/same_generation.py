# SPDX-License-Identifier: Apache-2.0
"""One generation, for every kind of target: a small model's tokens after a prompt, by several policies and formats.

As a program, for targets that need a process or a machine of their own: `same_generation.py TARGET...` prints JSON:
"stock" -> tokens of transformers without a drive; each target -> its tokens by policy.
"""

import json
import sys
from fractions import Fraction
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1] / "host"))

from small_models import CONFIGS, prompts, random_model

import kvdrive
from kvdrive.generation.generate import greedy
from kvdrive.policies import make_policy

PROMPT, TOKENS = 112, 20  # over the end of a page of 64 tokens and of a group of 16 that is written at once
MODEL = "llama"  # four query heads for each KV head
POLICIES = {
    "exact": {},
    "sparf": {"attention": "sparf", "ratio": Fraction(1, 4)},
    "groups": {"attention": make_policy("groups", Fraction(1, 4), unit=16)},
    "fp8": {"kv_format": "fp8"},
    "sparf over int4": {"attention": "sparf", "ratio": Fraction(1, 4), "kv_format": "int4"},
}
FORMATS = ("f16", "int8", "int4", "fp8")


def stock() -> list[int]:
    """The tokens of transformers without a drive."""
    return _new_tokens(random_model(CONFIGS[MODEL]))


def generate(target: str, policy: str, kv_format: str = "") -> list[int]:
    """The tokens with K and V in `target`, in the policy's format or in another one."""
    model = random_model(CONFIGS[MODEL])
    options = POLICIES[policy] | ({"kv_format": kv_format} if kv_format else {})
    with kvdrive.attach(model, target, **options):
        return _new_tokens(model)


def _new_tokens(model) -> list[int]:
    prompt = prompts(1, PROMPT)
    return greedy(model, prompt, TOKENS)[0, prompt.shape[1] :].tolist()


if __name__ == "__main__":
    found = {target: {policy: generate(target, policy) for policy in POLICIES} for target in sys.argv[1:]}
    print(json.dumps({"stock": stock(), **found}))
