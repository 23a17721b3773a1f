"""Attention by name: a model on drives that are open, or that are opened for it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from transformers import PreTrainedModel

from kvdrive.choices import Active, OnFailure, OnOverflow
from kvdrive.errors import InputError
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.plugins import transformers
from kvdrive.plugins.layer_inputs import Share
from kvdrive.plugins.support import decoder_config, group_of
from kvdrive.plugins.transformers import DEFAULT_SPILL, Attachment
from kvdrive.policies import Policy, make_policy
from kvdrive.sessions.options import SessionOptions
from kvdrive.targets.group import DriveGroup, Drives
from kvdrive.targets.opening import DriveOptions, open_named


@dataclass(frozen=True)
class AttentionOptions:
    """What a drive computes and how new tokens get there; `kvdrive.attach` explains the fields."""

    attention: str = "exact"
    ratio: Fraction | None = None
    unit: int = 0  # tokens that policy groups chooses together; 0: the policy's own
    unread: float = 0.0  # share of the softmax that policy groups may leave unread; 0: as `ratio` says
    spill: int = DEFAULT_SPILL
    on_failure: OnFailure = "raise"
    sessions: SessionOptions | None = None
    active: Active = "drive"
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    xcache: Share = 0.0
    overflow: OnOverflow = "error"
    overflow_ratio: float = 0.5
    context: int = 0
    kv_format: str = "f16"
    mini_batches: int = 1

    def policy(self) -> Policy:
        """The policy that the options name. Raises InputError."""
        given = {name: value for name, value in (("unit", self.unit), ("unread", self.unread)) if value}
        return make_policy(self.attention, self.ratio or Fraction(1), **given)


def attach(
    model: PreTrainedModel,
    target: Drives | str | Path = "emulator",
    attention: str | Policy = "exact",
    ratio: Fraction | None = None,
    *,
    spill: int = DEFAULT_SPILL,
    on_failure: OnFailure = "raise",
    options: DriveOptions | None = None,
    sessions: SessionOptions | bool = False,
    active: Active = "drive",
    memory: MemoryOptions | None = None,
    xcache: Share = 0.0,
    overflow: OnOverflow = "error",
    overflow_ratio: float = 0.5,
    context: int = 0,
    kv_format: str = "f16",
    mini_batches: int = 1,
) -> Attachment:
    """Send the decode attention of `model` to drives; as a context manager it restores the model.

    `target`: drives that are open, and stay so; or "emulator" or "cpu", empty drives as `options` describes them; or
    "smartssd", the cards of this machine; or an address ("tcp://HOST:PORT", "PATH.sock", "nvme:/dev/ngXnY"); or
    the path of a drive's file, which is mounted with what it holds, or made where there is none (an emulator, unless
    `options.target` is "cpu"). What is opened here is closed when the model is detached.

    `attention`: a policy or its name, at compression `ratio`. `spill`: new tokens of a layer wait on the host until so
    many can be written at once; 1 writes each at once. `on_failure`: what happens when a drive is lost or loses data:
    "recompute" makes the same K and V again on what is left, and the text goes on as it would have.

    `sessions`: keep K and V beyond the process; `attached.sessions.cache(ids)` begins with what the drive has of `ids`.

    `active`: "drive" attends to K and V where they are stored. "memory" keeps running sequences in memory, as far as
    `memory` allows, for the model's own attention; the drives keep them, and a stored session is loaded layer by layer.

    `xcache`: of this share of a batch's sequences the drives keep layer inputs instead of K and V, which the host
    rebuilds (docs/xcache.md); "auto": the share that is fastest here, often none.

    `overflow`: what happens when a sequence has `context` tokens, or as many as the model has positions (0). "error":
    the call fails. "trim": the share `overflow_ratio` of its tokens, behind the first group, leaves the drives; the
    others keep their K and V, and positions go on counting.

    `kv_format`: "f16", or K and V rounded to "int8", "int4" or "fp8" (e4m3) when they are computed, and stored so: half
    of the bytes, 2/7, or half (docs/eval.md has the price). Not with X-cache or policies on the host. "fp8" uses the
    scales of K and V that the folder of the model's checkpoint ships.

    `mini_batches`: a batch is computed in so many parts: while the drives attend to one, the host computes another
    (docs/xcache.md). Same tokens; faster where drives with engines of their own take longer than the model's matrices.
    Raises UnsupportedError for models that a drive cannot serve exactly, InputError, TargetError.
    """
    if options is not None and not isinstance(target, str | Path):
        raise InputError("options are for drives that are opened here: leave them out for drives that are open")
    with ExitStack() as opened:
        drives: Drives
        if isinstance(target, str | Path):
            options = options or DriveOptions()
            if options.engine == "rtl":
                options = replace(options, group=group_of(decoder_config(model)))
            drives = opened.enter_context(open_named(target, options))
        else:
            drives = target
        attachment = transformers.attach(
            model,
            drives,
            attention,
            ratio,
            spill=spill,
            on_failure=on_failure,
            sessions=sessions,
            active=active,
            memory=memory,
            xcache=xcache,
            overflow=overflow,
            overflow_ratio=overflow_ratio,
            context=context,
            kv_format=kv_format,
            mini_batches=mini_batches,
        )
        attachment.close_with(opened.pop_all())
    return attachment


def attach_to(model: PreTrainedModel, drives: DriveGroup, options: AttentionOptions) -> Attachment:
    """`attach` with its options as one value. Raises UnsupportedError, InputError."""
    return transformers.attach(
        model,
        drives,
        options.policy(),
        spill=options.spill,
        on_failure=options.on_failure,
        sessions=options.sessions or False,
        active=options.active,
        memory=options.memory,
        xcache=options.xcache,
        overflow=options.overflow,
        overflow_ratio=options.overflow_ratio,
        context=options.context,
        kv_format=options.kv_format,
        mini_batches=options.mini_batches,
    )
