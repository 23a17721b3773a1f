"""Runs the decode attention of transformers models in drives.

    with attach(model, target) as attached:
        model.generate(ids)                                         # a cache of its own, gone with the result
        model.generate(ids, past_key_values=attached.cache())       # one to go on with

The attention function, its mask and the cache are transformers' own extension points, by name. While the model is
attached, `model.forward` is wrapped: the wrapper replaces an empty cache by a drive's cache, and undoes failed calls.
The first call of a sequence attends to its own K and V on the host, as stock sdpa does; every later token attends
in the drives, over K and V rounded to binary16.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from kvdrive.config.resolve import resolve
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.plugins.attachment import Attachment
from kvdrive.plugins.forward import Forward
from kvdrive.plugins.support import check_model, decoder_config, group_of
from kvdrive.plugins.traits import traits_of
from kvdrive.policies import Policy
from kvdrive.targets.group import Drives
from kvdrive.targets.opening import open_named
from kvdrive.targets.options import DriveOptions

__all__ = ["Attachment", "attach"]


def attach(
    model: PreTrainedModel,
    target: Drives | str | Path | None = None,
    attention: str | Policy = "exact",
    ratio: Fraction | None = None,
    *,
    config: RunConfig | None = None,
    options: DriveOptions | None = None,
    **fields: Any,
) -> Attachment:
    """Send the decode attention of `model` to drives; as a context manager it restores the model.

    `target`: drives that are open, and stay so; or "emulator" or "cpu", empty drives as `options` describes them; or
    "smartssd", the cards of this machine; or an address ("tcp://HOST:PORT", "PATH.sock", "nvme:/dev/ngXnY"); or
    the path of a drive's file, which is mounted with what it holds, or made where there is none (an emulator, unless
    `options.target` is "cpu"); None: `options.target`. What is opened here is closed when the model is detached.

    `attention`: a policy or its name, at compression `ratio`. `fields`: any other option of `RunConfig` by its name, as
    sessions=True, active="memory" or kv_format="int8"; docs/options.md explains them and says what goes with
    what. Or `config` has all of them. `options`: those of the drives, if they are not in `config`.
    With `sessions`, `attached.sessions.cache(ids)` begins with what the drive has of `ids`.

    Raises UnsupportedError for models that a drive cannot serve exactly, ConflictError for options that exclude each
    other, InputError, TargetError.
    """
    config = _config(attention, ratio, config, options, fields)
    if options is not None and not isinstance(target, str | Path | None):
        raise InputError("options are for drives that are opened here: leave them out for drives that are open")
    check_model(model)
    traits = traits_of(model)
    if Forward(model).is_replaced:
        raise UnsupportedError(f"{type(model).__name__} is attached already: detach it first")
    plan = resolve(config, traits)
    with ExitStack() as opened:
        if isinstance(target, str | Path | None):
            there = config.target
            if there.engine == "rtl":
                there = replace(there, group=group_of(decoder_config(model)))
            target = opened.enter_context(open_named(there.target if target is None else target, there))
        attachment = Attachment(model, target, plan)
        attachment.close_with(opened.pop_all())
    return attachment


def _config(
    attention: str | Policy,
    ratio: Fraction | None,
    config: RunConfig | None,
    options: DriveOptions | None,
    fields: dict[str, Any],
) -> RunConfig:
    """The options of `attach` as one value. Raises InputError."""
    if config is None:
        config = RunConfig.of(attention=attention, ratio=ratio, **fields)
        return config if options is None else replace(config, target=options)
    if fields or options is not None or attention != "exact" or ratio is not None:
        raise InputError("config has all options: leave the others out, or change it with config.changed")
    return config
