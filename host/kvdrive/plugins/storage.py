"""Where an attached model's K and V are stored: drives, the identity under which they are found, scales, the policy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from kvdrive.config.resolve import Plan
from kvdrive.identity.model import ModelIdentity
from kvdrive.kvcache import formats
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.shipped_scales import scales_of
from kvdrive.kvcache.xcache.inputs import XCache
from kvdrive.plugins.forward import Forward
from kvdrive.plugins.layer_inputs import open_xcache
from kvdrive.plugins.support import report_layers_in_memory
from kvdrive.plugins.watched_model import WatchedModel
from kvdrive.policies import Policy
from kvdrive.targets.group import Drives, drives_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Storage:
    """`backing`: the drives; `watched`: the model; `policy`: what a decode step attends to, fitted to the model."""

    backing: Backing
    watched: WatchedModel
    policy: Policy


def open_storage(
    model: PreTrainedModel, target: Drives, plan: Plan, forward: Forward, call: Callable[..., Any]
) -> Storage:
    """Puts `call` in place of the model's forward, starts the threads of the drives, and watches the model from now on.

    Raises InputError, UnsupportedError.
    """
    with ExitStack() as undo:
        xcache = open_xcache(model, plan.config.placement.xcache)
        if xcache is not None:
            undo.callback(xcache.close)
        forward.replace(call)
        undo.callback(forward.restore)  # before the identity is taken, which watches the model from then on
        storage = _opened(model, target, plan, xcache)
        undo.pop_all()
    report_layers_in_memory(model)
    return storage


def _opened(model: PreTrainedModel, target: Drives, plan: Plan, xcache: XCache | None) -> Storage:
    stored_as = formats.named(plan.config.placement.kv_format)
    identity, scales = ModelIdentity(model, stored_as), scales_of(model, stored_as)
    label = identity.value
    if scales:
        log.info("%s ships scales of K and V for %d layers: they are used", model.name_or_path, len(scales))
    policy = plan.policy.fitted(lambda: label)
    backing = Backing(drives_of(target), plan.config.placement.spill, label, xcache, stored_as, scales)
    fitted = "" if policy is plan.policy else policy.name
    return Storage(backing, WatchedModel(identity, backing, fitted), policy)
