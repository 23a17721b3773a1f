"""Generate the shared constants from abi.toml and nvme.toml.

abi.toml becomes the C++ header of the kernels and the drive, and the Python module of the host, which the golden model
holds as a copy because it imports nothing but numpy. nvme.toml becomes a header and a module of the drive's controller
and the host's commands. commands.toml, the specification of the command set, becomes a page, a C header for firmware
and a Python module (command_set.py). `--check` reports drift and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from decimal import ROUND_HALF_EVEN, Decimal, getcontext
from pathlib import Path

import command_set

ROOT = Path(__file__).resolve().parent.parent
CPP = ROOT / "hls/common/abi.hpp"
PYTHON = (ROOT / "host/kvdrive/abi.py", ROOT / "sim/golden/abi.py")
NVME_CPP = ROOT / "sim/drive/commands/wire.hpp"
NVME_PYTHON = ROOT / "host/kvdrive/nvme/wire.py"
PAGE = ROOT / "docs/reference/command-set.md"
HEADER = ROOT / "abi/kvdrive_commands.h"
COMMANDS_PYTHON = ROOT / "host/kvdrive/nvme/command_set.py"
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "f32": 4}
NUMPY = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i32": "<i4", "f32": "<u4"}
CPP_TYPES = {
    "u8": "std::uint8_t",
    "u16": "std::uint16_t",
    "u32": "std::uint32_t",
    "u64": "std::uint64_t",
    "i32": "std::int32_t",
    "f32": "std::uint32_t",
}
LINE = 120
NOTE = "Generated from abi/{source} by abi/generate.py; do not edit."


def exp2_tables(constants: dict[str, int]) -> dict[str, list[int]]:
    """Coefficients of 2^f on 2^EXP2_INDEX_BITS intervals, correctly rounded (docs/design/arithmetic.md, Softmax)."""
    getcontext().prec = 60
    ln2 = Decimal(2).ln()
    entries = 1 << constants["EXP2_INDEX_BITS"]

    def rounded(factor: Decimal, bits: int) -> list[int]:
        values = ((ln2 * i / entries).exp() * factor * (1 << bits) for i in range(entries))
        return [int(v.to_integral_value(rounding=ROUND_HALF_EVEN)) for v in values]

    return {
        "EXP2_C0": rounded(Decimal(1), constants["EXP2_C0_BITS"]),
        "EXP2_C1": rounded(ln2, constants["EXP2_C1_BITS"]),
        "EXP2_C2": rounded(ln2 * ln2 / 2, constants["EXP2_C2_BITS"]),
    }


def layout(struct: dict) -> list[tuple[str, str, int, int]]:
    """(name, type, count, byte offset) of every field; refuses unaligned fields and a wrong total."""
    rows, offset = [], 0
    for field in struct["fields"]:
        name, kind, *count = field.split(":")
        number = int(count[0]) if count else 1
        if offset % SIZES[kind]:
            raise ValueError(f"field {name} is not aligned")
        rows.append((name, kind, number, offset))
        offset += SIZES[kind] * number
    if offset != struct["bytes"]:
        raise ValueError(f"fields take {offset} bytes, not {struct['bytes']}")
    return rows


def camel(name: str) -> str:
    return "k" + "".join(part.capitalize() for part in name.split("_"))


def wrapped(values: list[int], indent: str, width: int = 8) -> str:
    lines = (values[i : i + width] for i in range(0, len(values), width))
    return "\n".join(indent + ", ".join(map(str, line)) + "," for line in lines)


def render_python_body(abi: dict) -> list[str]:
    out = [f"{name} = {value}" for name, value in abi["constants"].items()]
    for name, values in abi.get("lists", {}).items():
        line = f"{name} = ({', '.join(map(str, values))})"
        out.append(line if len(line) <= LINE else f"{name} = (\n{wrapped(values, '    ')}\n)")
    if "EXP2_INDEX_BITS" in abi["constants"]:
        for name, values in exp2_tables(abi["constants"]).items():
            out.append(f"{name} = (\n{wrapped(values, '    ')}\n)")
    for name, members in abi["enums"].items():
        flag = name == "Status"
        body = "\n".join(f"    {key} = {value:#x}" for key, value in members.items())
        out.append(f"\n\nclass {name}({'IntFlag' if flag else 'IntEnum'}):\n{body}")
    out.append("\n")
    for name, struct in abi["structs"].items():
        rows = layout(struct)
        fields = [f'("{name}", "{NUMPY[kind]}"' + (f", ({n},))" if n > 1 else ")") for name, kind, n, _ in rows]
        out.append(f"{name} = np.dtype([\n{command_set.filled(fields)}\n])")
    return out


def render_python(abi: dict) -> str:
    note = NOTE.format(source="abi.toml")
    out = [f'"""Constants, opcodes and memory layouts shared with the kernels and the drive.\n\n{note}\n"""\n']
    out += ["# fmt: off", "from enum import IntEnum, IntFlag\n", "import numpy as np\n"]
    out.append(f"ABI_VERSION = {abi['abi_version']}")
    return "\n".join([*out, *render_python_body(abi)]) + "\n"


def render_nvme_python(abi: dict) -> str:
    out = [f'"""Standard NVMe numbers and layouts.\n\n{NOTE.format(source="nvme.toml")}\n"""\n']
    out += ["# fmt: off", "from enum import IntEnum\n", "import numpy as np\n", *render_python_body(abi)]
    return "\n".join(out) + "\n"


def cpp_constant(name: str, value: int) -> str:
    kind = "int" if value < 1 << 31 else "std::uint32_t"
    return f"constexpr {kind} {camel(name)} = {value};"


def opening(namespace: str, *includes: str) -> list[str]:
    """The begin of a header. C++14 has no nested names of namespaces."""
    lines = [f"#include <{name}>" for name in includes]
    return ["#pragma once", "", *lines, "", "namespace kvdrive {", f"namespace {namespace} {{", ""]


def closing(namespace: str) -> list[str]:
    return ["", f"}}  // namespace {namespace}", "}  // namespace kvdrive", ""]


def cpp_list(name: str, values: list[int]) -> str:
    return f"constexpr std::uint32_t {camel(name)}[{len(values)}] = {{\n{wrapped(values, '    ')}\n}};"


def cpp_struct(name: str, struct: dict) -> list[str]:
    rows = layout(struct)
    body = "\n".join(f"  {CPP_TYPES[kind]} {field}{f'[{n}]' if n > 1 else ''};" for field, kind, n, _ in rows)
    out = [f"\nstruct {name} {{\n{body}\n}};", f'static_assert(sizeof({name}) == {struct["bytes"]}, "size");']
    return out + [f'static_assert(offsetof({name}, {field}) == {offset}, "offset");' for field, _, _, offset in rows]


def cpp_enums(abi: dict) -> list[str]:
    out = []
    for name, members in abi["enums"].items():
        body = "\n".join(f"  {camel(key)} = {value:#x}," for key, value in members.items())
        out.append(f"\nenum {name} : std::uint32_t {{\n{body}\n}};")
    return out


def render_cpp(abi: dict) -> str:
    out = ["// SPDX-License-Identifier: Apache-2.0", f"// {NOTE.format(source='abi.toml')}", "// clang-format off"]
    out += opening("abi", "cstddef", "cstdint")
    out.append(f"constexpr int kAbiVersion = {abi['abi_version']};")
    out += [cpp_constant(name, value) for name, value in abi["constants"].items()]
    tables = {**abi["lists"], **exp2_tables(abi["constants"])}
    out += [cpp_list(name, values) for name, values in tables.items()]
    out += cpp_enums(abi)
    out += kernel_structs(abi)
    out += closing("abi")
    return "\n".join(out)


def kernel_structs(abi: dict) -> list[str]:
    """Structs with their bit positions, for kernels that unpack a layout from wide words."""
    out = []
    for name, struct in abi["structs"].items():
        out += cpp_struct(name, struct)
        rows = layout(struct)
        positions = "\n".join(f"constexpr int {camel(field)} = {offset * 8};" for field, _, _, offset in rows)
        out.append(f"namespace {name.lower()}_bit {{\n{positions}\n}}  // namespace {name.lower()}_bit")
    return out


def render_nvme_cpp(abi: dict) -> str:
    out = ["// SPDX-License-Identifier: Apache-2.0", f"// {NOTE.format(source='nvme.toml')}", "// clang-format off"]
    out += opening("nvme", "cstddef", "cstdint")
    out += [cpp_constant(name, value) for name, value in abi["constants"].items()]
    out += cpp_enums(abi)
    for name, struct in abi["structs"].items():
        out += cpp_struct(name, struct)
    out += closing("nvme")
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="report files that differ, write nothing")
    check = parser.parse_args().check
    abi = tomllib.loads((ROOT / "abi/abi.toml").read_text())
    nvme = tomllib.loads((ROOT / "abi/nvme.toml").read_text())
    files = {
        CPP: render_cpp(abi),
        **{path: render_python(abi) for path in PYTHON},
    }
    files |= {NVME_CPP: render_nvme_cpp(nvme), NVME_PYTHON: render_nvme_python(nvme)}
    rows = tomllib.loads((ROOT / "abi/commands.toml").read_text())
    commands = command_set.CommandSet(abi, nvme, rows)
    files |= {PAGE: command_set.render_page(commands), HEADER: command_set.render_header(commands)}
    files[COMMANDS_PYTHON] = command_set.render_python(commands)
    drifted = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if check:
        for path in drifted:
            print(f"{path.relative_to(ROOT)} differs from abi/*.toml: run `python abi/generate.py`", file=sys.stderr)
        return 1 if drifted else 0
    for path in drifted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
