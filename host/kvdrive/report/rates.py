"""The times of a generation in a few words."""

from __future__ import annotations

from typing import Any


def rates(report: dict[str, Any]) -> str:
    """Time to the first token, number of tokens, and their rate behind it."""
    times = report["measured"]
    tokens = sum(map(len, report["tokens"]))
    return f"first token after {times['seconds_to_first_token']:.2f} s, {tokens:,} tokens, {rate(times)} a second"


def rate(times: dict[str, Any]) -> str:
    """Tokens a second behind the first one."""
    found = times["decode_tokens_per_second"]
    return "-" if found is None else f"{found:.1f}"
