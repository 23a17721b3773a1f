"""What this server and others do of OpenAI's API: the table in docs/reference/requests.md."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from kvdrive.server.errors import ApiError
from kvdrive.server.fields import parse
from kvdrive.server.requests import BODIES

_PEERS = ("name", "openai", "llama", "vllm")
FACTS = Path(__file__).with_name("features.toml")
SMALLEST: dict[str, Any] = {
    "/v1/completions": {"model": "m", "prompt": "x"},
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "/v1/responses": {"model": "m", "input": "x"},
    "/v1/messages": {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5},
}


def table() -> str:
    """A line for each feature, and the sources behind them."""
    facts = tomllib.loads(FACTS.read_text(encoding="utf-8"))
    lines = [
        "| " + " | ".join([*(one[name] for name in _PEERS), one.get("ours") or ours(one), shown(one)]) + " |"
        for one in facts["feature"]
    ]
    names = {"openai": "OpenAI", "llama": "llama-server", "vllm": "vLLM"}
    sources = "; ".join(f"{names[name]}: {source}" for name, source in facts["sources"].items())
    head = ["| Feature | OpenAI | llama-server | vLLM | kvdrive serve | Shown by |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *lines, "", f"As of November 2026. {sources}."])


def shown(feature: dict[str, Any]) -> str:
    """The tests that show what this server does; of a refusal, the check itself is asked."""
    path = feature.get("test", "").partition("::")[0]
    return f"[{Path(path).stem}](../../{path})" if path else "its check"


def ours(feature: dict[str, Any]) -> str:
    """What this server does with a request that asks for it."""
    kind = BODIES.get(feature["path"])
    if kind is None or "sent" not in feature:
        return "yes"
    try:
        parse(kind, json.dumps(SMALLEST[feature["path"]] | json.loads(feature["sent"])).encode())
    except ApiError as error:
        return f"refused: `{error.param}`"
    return "yes"
