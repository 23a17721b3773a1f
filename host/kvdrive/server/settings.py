"""What the paths of the server know of its model and of what its owner allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kvdrive.server.errors import ApiError
from kvdrive.server.tenants import Tenants


@dataclass(frozen=True)
class Settings:
    """`name`: the model's name in answers. `prompt_tokens`: of the longest prompt; `context`: with its answer.

    `tenants`: the keys that clients must send, and whose they are. `open_metrics`: the metrics need no key. `seconds`:
    the longest time that an answer may take. `ignore_unknown`: fields and query parameters that are on no list of
    docs/reference/requests.md are logged and ignored instead of refused. `origins`: of pages elsewhere that may ask.
    """

    name: str
    prompt_tokens: int
    context: int
    tenants: Tenants = field(default_factory=Tenants)
    open_metrics: bool = False
    seconds: float = math.inf
    ignore_unknown: bool = False
    origins: tuple[str, ...] = ()

    def check_model(self, name: str) -> None:
        """Raises ApiError for the name of another model."""
        if name != self.name:
            text = f"no model '{name[:100]}' here: this server has '{self.name}'"
            raise ApiError(404, text, param="model", code="model_not_found")
