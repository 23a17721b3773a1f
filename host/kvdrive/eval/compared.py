"""What is compared: policies at their ratios, over formats of K and V, fitted to a model."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from transformers import PreTrainedModel

from kvdrive.config.abilities import Ability
from kvdrive.errors import InputError
from kvdrive.eval.points import Way
from kvdrive.identity.model import of_model
from kvdrive.kvcache import formats
from kvdrive.nvme.wire import RowFormat
from kvdrive.policies import POLICIES, Policy, entry_of, make_policy
from kvdrive.policies.groups import DEFAULT_UNIT, Groups


def chosen_policies(
    names: str, ratios: Sequence[Fraction], unread: Sequence[float] = (), units: Sequence[int] = ()
) -> list[Policy]:
    """The policies of a comma-separated list, or "all", at each ratio; exact attention once, and first where named.

    Ratio 1 of the others is exact attention. Policies that take something else after their name come once; "all" leaves
    them out, because they need a calibration. Policies that measure what they leave unread also come with each limit in
    `unread`, at the smallest ratio, and policy groups with each of `units` at each ratio. Raises InputError for unknown
    names and units, and for nothing to compare.
    """
    all_names = [name for name, entry in POLICIES.items() if not entry.takes]
    wanted = all_names if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    with_ratio = [name for name in wanted if not entry_of(name)[1].takes]
    found = [make_policy("exact")] if "exact" in wanted else []
    found += [make_policy(name, ratio) for name in with_ratio if name != "exact" for ratio in ratios if ratio != 1]
    if units and Groups.name not in with_ratio:
        raise InputError("no policy named here has units: add groups")
    others = [unit for unit in units if unit != DEFAULT_UNIT]
    found += [make_policy(Groups.name, ratio, unit=unit) for unit in others for ratio in ratios if ratio != 1]
    found += [make_policy(name) for name in wanted if name not in with_ratio]
    limited = [name for name in with_ratio if unread and make_policy(name).measures_unread]
    if unread and not limited:
        raise InputError("no policy named here has a limit of what is left unread: add groups")
    found += [make_policy(name, min(ratios), unread=limit) for name in limited for limit in unread]
    if not found:
        raise InputError("nothing to evaluate: name policies, and ratios below 1 for those other than exact")
    return found


def ways(policies: Sequence[Policy], kv_formats: Sequence[str]) -> list[Way]:
    """Every policy over every format that it can read. Raises InputError for unknown formats."""
    found = []
    for name in kv_formats:
        plain = formats.named(name) == RowFormat.BINARY16
        found += [Way(p, name) for p in policies if plain or Ability.FORMATS in p.provides]
    if not found:
        raise InputError("nothing to evaluate: policies on the host read K and V as f16 only; add f16 to the formats")
    return found


def fitted(compared: Sequence[Way], model: PreTrainedModel) -> list[Way]:
    """The ways with policies for this model. Raises InputError where a policy needs a calibration that is missing."""
    label = functools.cache(lambda kv_format: label_of(model, kv_format))
    return [replace(way, policy=way.policy.fitted(partial(label, way.kv_format))) for way in compared]


def label_of(model: PreTrainedModel, kv_format: str) -> bytes:
    """The identity of a model whose K and V are stored so."""
    return of_model(model, formats.named(kv_format))
