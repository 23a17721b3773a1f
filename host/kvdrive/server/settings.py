"""What the paths of the server know of its model and of what its owner allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kvdrive.server.errors import ApiError
from kvdrive.server.tenants import Tenants

_SHOWN = 10  # names of models in a message


@dataclass(frozen=True)
class Allowed:
    """What the owner of a server allows.

    `tenants`: the keys that clients must send, and whose they are. `open_metrics`: the metrics need no key. `seconds`:
    the longest time that an answer may take. `ignore_unknown`: fields and query parameters that are on no list of
    docs/reference/requests.md are logged and ignored instead of refused. `clamps`: a request for more tokens than fit
    gets as many as do, instead of an error. `origins`: of pages elsewhere that may ask.
    """

    tenants: Tenants = field(default_factory=Tenants)
    open_metrics: bool = False
    seconds: float = math.inf
    ignore_unknown: bool = False
    clamps: bool = False
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """`name`: the model's name in answers. `prompt_tokens`: of the longest prompt; `context`: with its answer."""

    name: str
    prompt_tokens: int
    context: int
    allowed: Allowed = field(default_factory=Allowed)

    def check_model(self, name: str) -> None:
        """Raises ApiError for the name of another model."""
        if name != self.name:
            raise no_model(name, [self.name])


def no_model(name: str, served: list[str]) -> ApiError:
    """The answer to a request for a model that is none of those that are served."""
    shown = ", ".join(f"'{one}'" for one in served[:_SHOWN]) + (", ..." if len(served) > _SHOWN else "")
    text = f"no model '{name[:100]}' here: this server has {shown}"
    return ApiError(404, text, param="model", code="model_not_found")
