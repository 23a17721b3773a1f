"""What models think before they answer: how families write it, how it is asked for, and what reads it in an answer.

Which way a model has is seen from its chat template, as for calls of tools. GPT-OSS has channels, see `harmony`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.calls import Piece, Thought
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json
from kvdrive.server.protocol import ChatRequest

_LEVELS = ("low", "medium", "high")  # of reasoning_effort in templates that have it


@dataclass(frozen=True)
class ThoughtFormat:
    """How a family writes thoughts: between `begin` and `end`, before all else of an answer. A template that lets every
    answer think may have written `begin` itself.
    """

    name: str
    begin: str
    end: str

    def begun(self, text: str) -> bool:
        """True if a prompt ends with the beginning of thoughts."""
        return text.rstrip().endswith(self.begin)

    def is_special(self, tokenizer: Tokenizer) -> bool:
        """True if its markers are tokens without a text of their own."""
        return self.begin in tokenizer.all_special_tokens


FORMATS: Sequence[ThoughtFormat] = (
    ThoughtFormat("Qwen 3, SmolLM3, DeepSeek R1", "<think>", "</think>"),
    ThoughtFormat("Magistral", "[THINK]", "[/THINK]"),
)
_SWITCHES = {  # variables of templates that let the model think or not, and how a template names them
    "enable_thinking": re.compile(r"\benable_thinking\b"),
    "thinking": re.compile(r"(?<![\w.'\"])thinking is (not )?defined"),
}
_EFFORT = re.compile(r"(?<![\w.'\"])reasoning_effort\b")


def template_of(tokenizer: Tokenizer) -> str:
    """The text of the model's chat template; "" without one."""
    template = tokenizer.chat_template
    return "" if template is None else str(template)


def thoughts_of(template: str) -> ThoughtFormat | None:
    """How the model of a template writes thoughts; None: it has none, or none that are known here."""
    return next((one for one in FORMATS if one.end in template), None)


def template_options(template: str, request: ChatRequest, thinks: bool | None, *, in_channels: bool) -> Json:
    """What a request asks of the template by name. `thinks`: a wish of another protocol; None: none. `in_channels`: the
    model has a channel of thoughts. Raises ApiError for what the template does not know.
    """
    known = {name for name, sign in _SWITCHES.items() if sign.search(template)}
    found: Json = {}
    if thinks is not None:
        if thinks and not (known or thoughts_of(template) or in_channels):
            raise _unknown("thinking", "this model does not think; leave it out")
        found |= dict.fromkeys(known, thinks)
    if (effort := request.reasoning_effort) is not None:
        found |= _effort(template, effort, known)
    given = request.chat_template_kwargs
    for name, value in (given.model_dump(exclude_none=True) if given else {}).items():
        if name not in known and not (name == "reasoning_effort" and _EFFORT.search(template)):
            raise _unknown(f"chat_template_kwargs.{name}", "this model's chat template does not know it; leave it out")
        found[name] = value
    return found


def _effort(template: str, effort: str, switches: set[str]) -> Json:
    if _EFFORT.search(template):
        if effort in _LEVELS:
            return {"reasoning_effort": effort}
        raise _unknown("reasoning_effort", f"this model knows {', '.join(_LEVELS)}")
    if switches and effort == "none":
        return dict.fromkeys(switches, False)
    why = "this model has no levels: send none, or" if switches else "this model's chat template does not know it:"
    raise _unknown("reasoning_effort", f"{why} leave it out")


def _unknown(param: str, why: str) -> ApiError:
    return ApiError(400, f"{param} is not supported here: {why}", param=param, code="unsupported_parameter")


class ThoughtReader:
    """Splits an answer, while it comes, into thoughts and what follows them. White space around thoughts is left out.

    `begun`: the prompt ends with the beginning of thoughts. An answer that begins with something else has none.
    """

    def __init__(self, how: ThoughtFormat, *, begun: bool) -> None:
        self._how = how
        self._waiting = ""
        self._state = "before" if begun else "start"  # then "within", "behind", "rest"

    @property
    def thinks(self) -> bool:
        """True while thoughts come."""
        return self._state in ("before", "within")

    def put(self, text: str) -> list[Piece]:
        """The pieces that are certain with this text."""
        self._waiting += text
        found: list[Piece] = []
        while (piece := self._next()) is not None:
            found += [piece] if piece not in ("", Thought("")) else []
        return found

    def end(self) -> list[Piece]:
        """What is left when no more text comes."""
        text, self._waiting = self._waiting, ""
        if self.thinks:
            text = text.rstrip()
            return [Thought(text)] if text else []
        return [text] if text and self._state != "behind" else []

    def _next(self) -> Thought | str | None:
        """What the waiting text begins with, which is taken from it; None: nothing is certain."""
        how = self._how
        if self._state == "start":
            text = self._waiting.lstrip()
            if text.startswith(how.begin):
                self._waiting, self._state = text[len(how.begin) :], "before"
                return ""
            if how.begin.startswith(text):
                return None
            self._state = "rest"
        if self._state in ("before", "behind"):  # white space is left out
            self._waiting = self._waiting.lstrip()
            if not self._waiting:
                return None
            self._state = {"before": "within", "behind": "rest"}[self._state]
        if self._state == "within":
            return self._thought()
        text, self._waiting = self._waiting, ""
        return text or None

    def _thought(self) -> Thought | None:
        text, end, rest = self._waiting.partition(self._how.end)
        if end:
            self._waiting, self._state = rest, "behind"
            return Thought(text.rstrip())
        held = next((n for n in range(len(self._how.end) - 1, 0, -1) if text.endswith(self._how.end[:n])), 0)
        certain = len(text[: len(text) - held].rstrip())
        self._waiting = text[certain:]
        return Thought(text[:certain]) if certain else None
