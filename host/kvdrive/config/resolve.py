"""From the options of a run to what is done: a plan, or the first two options that exclude each other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from kvdrive.config.abilities import ConflictError, Part, conflicts
from kvdrive.config.run import RunConfig
from kvdrive.config.table import EVERY, MINI_BATCHES, SESSIONS, of_group
from kvdrive.policies import Policy, make_policy

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """`config`, whose options go together, and its policy."""

    config: RunConfig
    policy: Policy


def resolve(config: RunConfig, model: Part | None = None) -> Plan:
    """What `config` means; `model`: what the model can do and needs, None: it is not loaded yet.

    `xcache` and `mini_batches` "auto" give way to what they exclude. Raises ConflictError, InputError.
    """
    policy = config.policy.policy()
    parts = [*of_run(config), part_of(policy), *([model] if model else [])]
    for conflict in conflicts(parts, (*EVERY, part_of(make_policy("exact")))):
        if config.placement.xcache == "auto" and "xcache" in (conflict.a.option, conflict.b.option):
            log.warning("X-cache takes none of the sequences: %s", conflict)
            return resolve(config.changed(xcache=0.0), model)
        raise ConflictError(conflict)
    if config.placement.mini_batches == "auto" and any(conflicts([MINI_BATCHES, *parts])):
        config = config.changed(mini_batches=1)
    return Plan(config, policy)


def part_of(policy: Policy) -> Part:
    """What a policy can do."""
    return Part("attention", policy.name, policy.provides, lacks=policy.lacks)


def of_run(config: RunConfig) -> Iterator[Part]:
    """The parts of a configuration, but for its policy."""
    yield from config.target.parts()
    for group in (config.model, config.placement, config.limits, config.drafting, config.weights):
        yield from of_group(group)
    if config.sessions is not None:
        yield SESSIONS
