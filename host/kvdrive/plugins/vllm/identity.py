"""What the K and V of an engine depend on besides the tokens. The same for both of this package's ways into vLLM."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import vllm
from vllm.config import VllmConfig
from vllm.platforms import current_platform

from kvdrive.identity.parts import counting
from kvdrive.plugins.vllm.fingerprint import require_no_adapters, weights_digest
from kvdrive.plugins.vllm.options import Options


def of_engine(engine: VllmConfig, options: Options) -> dict[str, Any]:
    """vLLM itself, the model's configuration with overrides, weights, precision, quantisation and kind of device.

    Raises InputError, UnsupportedError.
    """
    model = engine.model_config
    require_no_adapters(engine.lora_config, options.model_fingerprint)
    blocks = Path(options.drive) if options.drive else options.path
    return {
        "vllm": vllm.__version__,
        "weights": options.model_fingerprint or weights_digest(Path(model.model), options.threads, blocks),
        "config": counting(model.hf_config),
        "device": current_platform.device_type,
        "dtype": str(model.dtype),
        "quantization": model.quantization,
    }


def engine_being_made() -> VllmConfig | None:
    """The configuration of the engine that one of the callers makes; None if none does.

    vLLM hands a tier a part of it, without overrides and adapters, and the functions that make the tier have all of it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, VllmConfig):
                return value
        frame = frame.f_back
    return None
