# SPDX-License-Identifier: Apache-2.0
"""The top: the names and the handshake that Vitis gives a kernel, around the module of its process.

ap_ctrl_hs: hold `ap_start` until `ap_ready`; `ap_done` is high for one cycle; outputs stay until the next start.
Streams are AXI4-Stream. Arguments are taken over at the start.
"""

from __future__ import annotations

from openhls.backend.control import module_name
from openhls.backend.keywords import KEYWORDS
from openhls.backend.netlist import Module, Net, Term, all_of, any_of, negate
from openhls.errors import Unsupported
from openhls.ir import Direction, Process


def module_of(top: str) -> str:
    """The name of the module of a function: its own, unless SystemVerilog has a use for that."""
    return f"{top}_top" if top in KEYWORDS else top


def check_names(process: Process) -> None:
    """Arguments keep their C++ names, so these must be names in SystemVerilog, too."""
    for name in (*(scalar.name for scalar in process.scalars), *(output for output, _ in process.outputs)):
        if name in KEYWORDS:
            raise Unsupported(process.location, f"argument {name}: a keyword of SystemVerilog", "give it another name")


def build_top(process: Process, name: str) -> Module:
    """The module `name`, with ap_clk and ap_rst_n in place of clk and rst."""
    check_names(process)
    module = Module(name, f"Top: {process.location}", clock="ap_clk", reset="ap_rst_n")
    start = module.input("ap_start", 1)
    done, ready, idle = (module.output(f"ap_{name}", 1) for name in ("done", "ready", "idle"))
    ended = module.net("ended", 1)
    running = module.net("running", 1)
    begin = module.wire("begin_job", all_of([start, negate(running)]))
    begun = module.register(module.net("begun", 1), begin, reset=0)
    module.register(running, any_of([begin, all_of([running, negate(ended)])]), reset=0)
    module.assign(done, ended)
    module.assign(ready, ended)
    module.assign(idle, negate(running))
    inputs: dict[str, Term] = {"start": begun}
    outputs: dict[str, Net] = {"done": ended}
    for scalar in process.scalars:
        port = module.input(scalar.name, scalar.width)
        inputs[f"arg_{scalar.name}"] = module.register(module.net(f"{scalar.name}_taken", scalar.width), port, begin)
    for stream in process.streams:
        names = {part: f"{stream.name}_t{part}" for part in ("data", "valid", "ready")}
        if stream.direction is Direction.READ:
            inputs[f"{stream.name}_data"] = module.input(names["data"], stream.width)
            inputs[f"{stream.name}_valid"] = module.input(names["valid"], 1)
            outputs[f"{stream.name}_ready"] = module.output(names["ready"], 1)
        else:
            outputs[f"{stream.name}_data"] = module.output(names["data"], stream.width)
            outputs[f"{stream.name}_valid"] = module.output(names["valid"], 1)
            inputs[f"{stream.name}_ready"] = module.input(names["ready"], 1)
    for output, operand in process.outputs:
        name = "ap_return" if output == "result" else output
        outputs[f"out_{output}"] = module.output(name, operand.width)
    module.instance(module_name(process), "process", inputs, outputs)
    return module
