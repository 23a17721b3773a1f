"""What a request asks of the prefix store."""

from __future__ import annotations

from dataclasses import dataclass

STEPS = 64  # tokens that a request is taken to generate where nobody says


@dataclass(frozen=True)
class Request:
    """Its prompt, the name of its session or "", the tokens that it will generate, and whose it is."""

    prompt: tuple[int, ...] = ()
    name: str = ""
    new_tokens: int = STEPS
    tenant: str = ""
