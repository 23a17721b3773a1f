"""Chat templates of GGUF files, which are Jinja as in Hugging Face checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kvdrive.errors import InputError


def rendered(
    template: str, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **more: Any
) -> str:
    """The messages as text, with the beginning of an answer. `more`: what else the template knows by name, as special
    tokens and tools.

    Raises InputError for what the template refuses or cannot express.
    """
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    try:
        made = environment.from_string(template)
        return made.render(messages=list(messages), add_generation_prompt=add_generation_prompt, **more)
    except jinja2.TemplateError as error:
        raise InputError(f"the model's chat template does not take these messages: {error}") from error


def _refuse(sentence: str) -> NoReturn:
    raise jinja2.TemplateError(sentence)
