# SPDX-License-Identifier: Apache-2.0
"""The bits that control is made of."""

from __future__ import annotations

from openhls.emit.netlist import Module, Net, Term, all_of, any_of, negate


def delayed(module: Module, name: str, pulse: Term) -> Net:
    """A bit that is 1 in the cycle after the pulse."""
    return module.register(module.net(name, 1), pulse, reset=0)


def flag(module: Module, name: str, set_by: Term, cleared_by: Term) -> Net:
    """A bit that is 1 from the cycle after `set_by` to the cycle of `cleared_by`."""
    net = module.net(name, 1)
    return module.register(net, any_of([set_by, all_of([net, negate(cleared_by)])]), reset=0)
