"""The forward of a model that is attached: the drives' call stands in its place, under its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from transformers import PreTrainedModel

from kvdrive.identity.content import covers
from kvdrive.plugins import attention


class Forward:
    """`own`: the model's own forward, with its `signature`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._stock = model.config._attn_implementation
        self.own: Callable[..., Any] = model.forward
        self._before: Callable[..., Any] | None = vars(model).get("forward")  # not the class's, where there is one
        self.signature = inspect.signature(model.forward)

    @property
    def is_replaced(self) -> bool:
        """True between `replace` and `restore`."""
        return bool(self._model.config._attn_implementation == attention.NAME)

    def replace(self, call: Callable[..., Any]) -> None:
        """Let the model call the drives' attention, and `call` in place of its forward."""

        @wraps(self.own)  # transformers looks at the signature
        def forward(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        attention.register()
        self._model.set_attn_implementation(attention.NAME)
        self._model.forward = covers(forward, self._before)

    def restore(self) -> None:
        """Undo `replace`."""
        self._model.set_attn_implementation(self._stock)
        del self._model.forward  # uncovers the forward of the class
        if self._before is not None:
            self._model.forward = self._before
