"""The command set's specification (commands.toml) as a page, as a C header for firmware, and as a Python module."""

from __future__ import annotations

import re
from typing import Any

Toml = dict[str, Any]
NOTE = "Generated from abi/commands.toml, abi/abi.toml and abi/nvme.toml by abi/generate.py; do not edit."
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "f32": 4}
C_TYPES = {
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "i32": "int32_t",
    "f32": "uint32_t",
}
NAMESPACES = {0: "admin", 1: "K, V and blocks", 2: "drive memory", 3: "attention", 4: "values by key"}
DIRECTIONS = ("none", "to_controller", "to_host")
ENTRY = 64  # bytes of a submission queue entry
# Enums of statuses in C. The kernels' own status word has another name.
C_ENUMS = {"NvmeStatus": "STATUS", "StatusCode": "STATUS", "Status": "ENGINE_STATUS"}
ARITHMETIC = ("EXP2", "INSERTION", "P_FRACTION", "WEIGHT_BITS")  # constants that only engines need


class CommandSet:
    """All three files together. Raises ValueError for a name that no enum or struct has."""

    def __init__(self, abi: Toml, nvme: Toml, commands: Toml) -> None:
        self.version: int = abi["abi_version"]
        self.constants = abi["constants"] | nvme["constants"]
        self.enums = abi["enums"] | nvme["enums"]
        self.structs = abi["structs"] | nvme["structs"]
        self.general = commands["general"]
        self.rows = {name: row for name, row in commands.items() if name != "general"}
        self.statuses = {**nvme["enums"]["StatusCode"], **abi["enums"]["NvmeStatus"]}
        for name, row in commands.items():
            if unknown := set(row["status"]) - set(self.statuses):
                raise ValueError(f"{name}: no status is called {sorted(unknown)[0]}")
            known = (
                {field.split(":")[0] for field in self.structs[row["layout"]]["fields"]} if "layout" in row else None
            )
            if known is not None and (strange := set(row["fields"]) - known):
                raise ValueError(f"{name}: {row['layout']} has no field {sorted(strange)[0]}")

    def opcode(self, row: Toml) -> int:
        """The opcode of a command."""
        kind, _, member = row["opcode"].partition(".")
        if member not in self.enums.get(kind, {}):
            raise ValueError(f"no opcode is called {row['opcode']}")
        return int(self.enums[kind][member])

    def direction(self, row: Toml) -> str:
        """Where the command's data go, as the drive's table says it."""
        return DIRECTIONS[self.opcode(row) & 3] if "data" in row else DIRECTIONS[0]


def status_name(name: str) -> str:
    """A status without the prefix that only tells the standard's codes from the drive's own."""
    return name.removeprefix("SC_")


# ---- the page ----


def render_page(commands: CommandSet) -> str:
    out = ["# The command set", "", f"<!-- {NOTE} -->", ""]
    out += [
        "This page is the specification of what a drive must do, for authors of firmware and of drivers.",
        "`kvdrive drive conformance TARGET` checks a drive against it and reports per command.",
        "`abi/kvdrive_commands.h` has the same numbers and layouts in C99.",
        "[The drive](../design/drive.md#firmware-a-drive-of-your-own) says what a board needs beside it.",
        "[Arithmetic](../design/arithmetic.md) defines the bits of results, [jobs](jobs.md) the jobs of an engine.",
        "",
        f"Version {commands.version}. Entries have 64 bytes and completions 16, little endian (NVM Express Base 2.1).",
        "Bytes 0 to 7 of every entry are opcode, flags, command identifier and namespace, bytes 16 to 39 are metadata",
        "and data pointers. Reserved fields are 0. The 64-bit result is in dwords 0 and 1 of the completion.",
        "Odd opcodes carry data to the drive, opcodes that end in binary 10 carry data to the host.",
        "",
        "## All commands",
        "",
        "**Order.** " + commands.general["order"],
        "",
        "**Durability.** " + commands.general["durable"],
        "",
        "Every command may end with one of these statuses:",
        "",
        *_status_table(commands, commands.general["status"]),
        "",
        "| Command | Opcode | Namespace | Data |",
        "|---|---|---|---|",
    ]
    for name, row in commands.rows.items():
        data = {"none": "-", "to_controller": "to the drive", "to_host": "to the host"}[commands.direction(row)]
        place = row["namespace"] or "admin"
        out.append(f"| [{name}](#{name.lower()}) | {commands.opcode(row):02X}h | {place} | {data} |")
    namespace = None
    for name, row in commands.rows.items():
        if row["namespace"] != namespace:
            namespace = row["namespace"]
            out += ["", f"## {f'Namespace {namespace}: ' if namespace else ''}{_title(name, namespace)}"]
        out += _section(commands, name, row)
    return "\n".join(out) + "\n"


def _title(name: str, namespace: int) -> str:
    if namespace == 1:
        return "sessions" if name == "KV_APPEND" else "blocks"
    titles = {0: "Admin commands", 2: "drive memory", 4: "values by key"}
    return titles.get(namespace) or ("programs" if name == "EXECUTE_PROGRAM" else "attention")


def _section(commands: CommandSet, name: str, row: Toml) -> list[str]:
    out = ["", f"### {name}", "", f"Opcode {commands.opcode(row):02X}h. {row['does']}", ""]
    if row.get("broadcast"):
        out[-2] += " It also accepts all namespaces at once (FFFFFFFFh)."
    if fields := list(_fields(commands, row)):
        out += ["| Bytes | Field | Type | Meaning |", "|---|---|---|---|", *fields, ""]
    for title, key in (("Data", "data"), ("Result", "result"), ("Order", "order"), ("Durability", "durable")):
        if key in row:
            out += [f"**{title}.** {row[key][:1].upper()}{row[key][1:].rstrip('.')}.", ""]
    if row["status"]:
        out += _status_table(commands, row["status"])
    return out if out[-1] else out[:-1]


def _fields(commands: CommandSet, row: Toml) -> list[str]:
    if "layout" not in row:
        return [f"| {_dwords(place)} | {place} | - | {text} |" for place, text in row["fields"].items()]
    out, offset = [], 0
    for field in commands.structs[row["layout"]]["fields"]:
        name, kind, *count = field.split(":")
        size = SIZES[kind] * (int(count[0]) if count else 1)
        if offset >= 8 and not 16 <= offset < 40 and not name.startswith("reserved"):
            text = row["fields"].get(
                name, "number of the session" if name == "session" else "the layer" if name == "layer" else ""
            )
            out.append(f"| {offset}-{offset + size - 1} | {name} | {kind} | {text} |")
        offset += size
    return out


def _dwords(place: str) -> str:
    if place == "nsid":
        return "4-7"
    first, _, last = place.removeprefix("cdw").partition("-")
    return f"{int(first) * 4}-{int(last or first) * 4 + 3}"


def _status_table(commands: CommandSet, statuses: Toml) -> list[str]:
    rows = [f"| {status_name(name)} | {commands.statuses[name]:03X}h | {text} |" for name, text in statuses.items()]
    return ["| Status | Type and code | When |", "|---|---|---|", *rows]


# ---- the C header ----


def render_header(commands: CommandSet) -> str:
    out = ["/* SPDX-License-Identifier: Apache-2.0 */", f"/* {NOTE} */"]
    out += ["/* The command set of kvdrive's drives for firmware in C99; docs/reference/command-set.md explains it. */"]
    out += ["#ifndef KVDRIVE_COMMANDS_H", "#define KVDRIVE_COMMANDS_H", "", "#include <stdint.h>", ""]
    out.append(f"#define KVDRIVE_ABI_VERSION {commands.version}")
    for name, value in commands.constants.items():
        if not name.startswith(ARITHMETIC):
            out.append(f"#define KVDRIVE_{name} {value}{'u' if value >= 1 << 31 else ''}")
    for kind, members in commands.enums.items():
        out += _c_enum(kind, members)
    out += ["", "/* X(name, namespace, opcode, data: 0 none, 1 to the drive, 2 to the host) for every command. */"]
    rows = [
        f"  X({name}, {row['namespace']}, {commands.opcode(row):#04x}, {DIRECTIONS.index(commands.direction(row))})"
        for name, row in commands.rows.items()
    ]
    out.append("#define KVDRIVE_COMMAND_TABLE(X) \\\n" + " \\\n".join(rows))
    out += [
        "",
        "/* Layouts, little endian. A typedef of negative size stops a compiler that aligns differently. */",
    ]
    for name, struct in commands.structs.items():
        out += _c_struct(name, struct)
    return "\n".join([*out, "", "#endif", ""])


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def _c_enum(kind: str, members: dict[str, int]) -> list[str]:
    head = C_ENUMS.get(kind, _snake(kind).upper())
    prefixes = {name.partition("_")[0] + "_" for name in members}
    common = prefixes.pop() if len(prefixes) == 1 and len(members) > 1 else ""
    out = ["", f"/* {kind} */"]
    return out + [f"#define KVDRIVE_{head}_{name.removeprefix(common)} {value:#x}u" for name, value in members.items()]


def _c_struct(name: str, struct: Toml) -> list[str]:
    kind = f"kvdrive_{_snake(name).lower()}"
    body = []
    for field in struct["fields"]:
        label, c_type, *count = field.split(":")
        body.append(f"  {C_TYPES[c_type]} {label}{f'[{count[0]}]' if count else ''};")
    check = f"typedef char {kind}_has_its_size[sizeof({kind}) == {struct['bytes']} ? 1 : -1];"
    return ["", f"typedef struct {kind} {{", *body, f"}} {kind};", check]


# ---- the Python module ----


def render_python(commands: CommandSet) -> str:
    used = dict.fromkeys(
        [*commands.general["status"], *(name for row in commands.rows.values() for name in row["status"])]
    )
    numbers = [f'"{status_name(name)}": {commands.statuses[name]:#05x}' for name in used]
    out = [
        f'"""The rows of the command set, for checks of drives.\n\n{NOTE}\n"""\n',
        "# fmt: off",
        "from typing import NamedTuple\n\n",
        "class Row(NamedTuple):",
        '    """`namespace` 0: admin. `direction`: none, to_controller, to_host. `statuses` are beside GENERAL."""\n',
        "    opcode: int",
        "    namespace: int",
        "    direction: str",
        "    statuses: tuple[str, ...]",
        f"\n\nSTATUSES = {{\n{filled(numbers)}\n}}",
        f"GENERAL = {_statuses(commands.general['status'])}",
        "COMMANDS = {",
    ]
    for name, row in commands.rows.items():
        line = f'    "{name}": Row({commands.opcode(row):#04x}, {row["namespace"]}, "{commands.direction(row)}", '
        out.append(line + _statuses(row["status"], "        ", "    ") + "),")
    return "\n".join([*out, "}", ""])


def _statuses(statuses: Toml, indent: str = "    ", closing: str = "") -> str:
    """Their names as a tuple."""
    names = [f'"{status_name(name)}"' for name in statuses]
    return f"(\n{filled(names, indent)}\n{closing})" if names else "()"


def filled(items: list[str], indent: str = "    ", width: int = 120) -> str:
    """Items, each with a comma, on as few lines as possible."""
    lines = [""]
    for item in items:
        if lines[-1] and len(indent) + len(lines[-1]) + len(item) + 2 > width:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + item + ","
    return "\n".join(indent + line for line in lines)
