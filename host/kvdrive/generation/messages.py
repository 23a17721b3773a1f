"""The messages of a conversation, in a file that every runtime reads."""

from __future__ import annotations

import json
from pathlib import Path

from kvdrive import private
from kvdrive.errors import InputError

Messages = list[dict[str, str]]  # each with "role" and "content", as chat templates take them
MESSAGES = "messages.json"
USER, ASSISTANT = "user", "assistant"


def read(path: Path) -> Messages:
    """What an earlier process saved; empty where there is nothing. Raises InputError when it is damaged."""
    if not path.exists():
        return []
    try:
        found: Messages = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is damaged: remove it to start anew") from error
    return found


def write(path: Path, messages: Messages) -> None:
    """Save the messages, in place of those that were there."""
    private.write_text(path, json.dumps(messages, ensure_ascii=False, indent=1))


def unanswered(messages: Messages) -> str:
    """The last message, if its answer has not ended: the process that should give it was killed; "": it has."""
    last = messages[-1:]
    return last[0]["content"] if last and last[0]["role"] == USER else ""
