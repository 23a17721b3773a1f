"""The model `kvdrive` in lm-eval's list, so that `lm_eval --model kvdrive` finds it.

lm-eval 0.4.13 lists the models of its own package and has no entry point for others. Python therefore imports this
module when it starts (`kvdrive_lm_eval.pth`), and this module waits for `lm_eval.models`: nothing else is imported or
changed.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class AfterModels:
    """In `sys.meta_path`: imports `lm_eval.models` as it is, then adds one name to the registry it has filled."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "lm_eval.models":
            return None
        sys.meta_path.remove(cls)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                from lm_eval.api.registry import model_registry

                model_registry.register("kvdrive", target="kvdrive.plugins.lm_eval:DriveLM")

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, AfterModels)
