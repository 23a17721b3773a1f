# SPDX-License-Identifier: Apache-2.0
"""Debug information of a module: C++ lines, and the names and types of functions and variables."""

from __future__ import annotations

import re
from itertools import islice

from openhls.frontend.llvm.module import Variable
from openhls.frontend.types import Array, Int, Pointer, Struct, Type
from openhls.ir import Channels, Field, Location


class DebugInfo:
    """Metadata nodes of a module."""

    def __init__(self, text: str, hidden: str) -> None:
        self._hidden = hidden
        self._nodes: dict[str, str] = dict(re.findall(r"^(!\d+) = (?:distinct )?(.*)$", text, re.MULTILINE))
        self._locations: dict[str, Location] = {}
        self._value_names: dict[tuple[str, str], str] = {}
        self._parameters: dict[str, dict[str, str]] = {}  # types by function and name
        for reference, node in self._nodes.items():
            if node.startswith("!DILocalVariable") and "arg: " in node:
                name, of = self.entry(reference, "name"), self.entry(reference, "type")
                if name and of:
                    self._parameters.setdefault(self.entry(reference, "scope"), {})[name] = of

    def node(self, reference: str) -> str:
        """The text of a node."""
        return self._nodes.get(reference, "")

    def entry(self, reference: str, key: str) -> str:
        """The value of `key: value` in a node."""
        match = re.search(rf'\b{key}: (?:"([^"]*)"|([^,)]+))', self.node(reference))
        return (match.group(1) if match.group(1) is not None else match.group(2)) if match else ""

    def file(self, scope: str) -> str:
        """The file of a scope."""
        reference = self.entry(scope, "file")
        name, directory = self.entry(reference, "filename"), self.entry(reference, "directory")
        return name if name.startswith("/") or not directory else f"{directory}/{name}"

    def location(self, reference: str) -> Location:
        """The C++ line of a DILocation, with its callers."""
        if reference not in self._locations:
            inlined_at = self.entry(reference, "inlinedAt")
            caller = self.location(inlined_at) if inlined_at else None
            line = int(self.entry(reference, "line") or 0)
            file = self.file(self.entry(reference, "scope"))
            inner = caller is not None and file.startswith(self._hidden)
            self._locations[reference] = caller if inner and caller else Location(file, line, caller)
        return self._locations[reference]

    def variable(self, reference: str) -> Variable:
        """A DILocalVariable."""
        location = Location(self.file(self.entry(reference, "scope")), int(self.entry(reference, "line") or 0))
        number = self.number(self.entry(reference, "type"))
        return Variable(self.entry(reference, "name"), location, int(self.entry(reference, "arg") or 0), number)

    def value_name(self, reference: str, expression: str) -> str:
        """The name of the DILocalVariable that holds a value, with that of its field where it is a struct.

        "" for variables of the compiler's own headers, and where the expression computes something else than the value.
        """
        key = reference, expression
        if key not in self._value_names:
            self._value_names[key] = self._value_name(reference, expression)
        return self._value_names[key]

    def _value_name(self, reference: str, expression: str) -> str:
        name, scope = self.entry(reference, "name"), self.entry(reference, "scope")
        same = r"DW_OP_LLVM_convert, \d+, \w+|DW_OP_LLVM_fragment, \d+, \d+|DW_OP_stack_value|[, ]"
        if re.sub(same, "", expression) or name == "this" or self.file(scope).startswith(self._hidden):
            return ""
        of = self.entry(reference, "type")
        while self.node(of).startswith("!DIDerivedType"):
            of = self.entry(of, "baseType")
        fragment = re.search(r"DW_OP_LLVM_fragment, (\d+), ", expression)
        if fragment is None or self.number(of) is not None:
            return name
        members = re.findall(r"!\d+", self.node(self.entry(of, "elements")))
        fields = (each for each in members if self.entry(each, "tag") == "DW_TAG_member")
        found = (each for each in fields if (self.entry(each, "offset") or "0") == fragment[1])
        return "_".join([name, *(self.entry(each, "name") for each in islice(found, 1))])

    def number(self, reference: str) -> tuple[int, bool] | None:
        """Width and sign of an integer type, through names, references and const."""
        text = self.node(reference)
        if text.startswith("!DIBasicType"):
            encoding = self.entry(reference, "encoding")
            if encoding == "DW_ATE_boolean":
                return 1, False
            return int(self.entry(reference, "size")), not encoding.startswith("DW_ATE_unsigned")
        if text.startswith("!DIDerivedType"):
            return self.number(self.entry(reference, "baseType"))
        named = re.match(r"ap_(u?)(?:int|fixed)<(\d+)[,>]", self.entry(reference, "name"))
        return (int(named.group(2)), not named.group(1)) if named else None

    def parameters(self, subprogram: str) -> dict[str, str]:
        """The types of the parameters of a function, by name."""
        return self._parameters.get(subprogram, {})

    def spelled(self, reference: str) -> str:
        """A type as C++ writes it, without `const` and with what a typedef stands for: `int*`, `stream<struct P>&`."""
        text, name = self.node(reference), self.entry(reference, "name")
        if name.startswith("stream<"):
            first = re.match(r"!\{(!\d+)", self.node(self.entry(reference, "templateParams")))
            return f"stream<{self.spelled(self.entry(first.group(1), 'type'))}>" if first else name
        if "DW_TAG_array_type" in text:
            bounds = re.findall(r"!\d+", self.node(self.entry(reference, "elements")))
            counts = "".join(f"[{self.entry(bound, 'count')}]" for bound in bounds)
            return self.spelled(self.entry(reference, "baseType")) + counts
        if not text.startswith("!DIDerivedType"):
            is_struct = "DW_TAG_structure_type" in text or "DW_TAG_class_type" in text
            return f"struct {name}" if is_struct and not re.match(r"ap_u?(int|fixed)<\d+[,>]", name) else name
        suffix = {"DW_TAG_pointer_type": "*", "DW_TAG_reference_type": "&"}.get(self.entry(reference, "tag"), "")
        return self.spelled(self.entry(reference, "baseType")) + suffix

    def pointee(self, reference: str) -> Type | None:
        """What a pointer or a reference leads to; None for other types, and where that is not known."""
        if not self.node(reference).startswith("!DIDerivedType"):
            return None
        base = self.entry(reference, "baseType")
        if self.entry(reference, "tag") in ("DW_TAG_pointer_type", "DW_TAG_reference_type"):
            return self.type_of(base)
        return self.pointee(base)

    def channels(self, reference: str) -> Channels:
        """The channels of a stream of hls::axis (shim/common/ap_axi_sdata.h), or of an array of such; else none."""
        name = self.entry(reference, "name")
        if not name.startswith(("stream<", "axis<")):
            is_other = self.node(reference).startswith("!DIDerivedType") or "DW_TAG_array_type" in self.node(reference)
            base = self.entry(reference, "baseType")
            return self.channels(base) if is_other and base else ()
        given = re.findall(r"!\d+", self.node(self.entry(reference, "templateParams")))
        if name.startswith("stream<"):
            return self.channels(self.entry(given[0], "type")) if given else ()
        data = self.entry(given[0], "type")
        size = self._flat_bits(data) if data.startswith("!") else 0
        user, id_, dest, enabled = (int(self.entry(each, "value").split()[-1]) for each in given[1:5])
        keep = (size + 7) // 8 if enabled & 1 else 0
        widths = (
            *(("data", size if enabled & 1 else 0), ("keep", keep if enabled & 8 else 0)),
            *(("strb", keep if enabled & 32 else 0), ("user", user if enabled & 64 else 0)),
            *(("last", enabled >> 4 & 1), ("id", id_ if enabled & 4 else 0), ("dest", dest if enabled & 2 else 0)),
        )
        return tuple((channel, width) for channel, width in widths if width)

    def word(self, reference: str) -> str:
        """The type of the words of a stream, or of an array of streams; "" for anything else."""
        if self.entry(reference, "name").startswith("stream<"):
            given = re.findall(r"!\d+", self.node(self.entry(reference, "templateParams")))
            return self.entry(given[0], "type") if given else ""
        is_other = self.node(reference).startswith("!DIDerivedType") or "DW_TAG_array_type" in self.node(reference)
        base = self.entry(reference, "baseType")
        return self.word(base) if is_other and base else ""

    def _flat_bits(self, reference: str) -> int:
        """Bits of a value in a word, as `flat` of ap_axi_sdata.h counts them: all but ap_int and ap_uint as bytes."""
        named = re.fullmatch(r"ap_u?int<(\d+)>", self.entry(reference, "name"))
        size = named.group(1) if named else self.entry(reference, "size")
        return int(size) if size else self._flat_bits(self.entry(reference, "baseType"))

    def type_of(self, reference: str) -> Type | None:
        """The type in memory; None for what has no equal here (floating point, streams, unions)."""
        text = self.node(reference)
        tag = self.entry(reference, "tag")
        bits = int(self.entry(reference, "size") or 0)
        if text.startswith("!DIBasicType"):
            return None if self.entry(reference, "encoding") == "DW_ATE_float" else Int(bits)
        if text.startswith("!DIDerivedType"):
            return Pointer() if tag == "DW_TAG_pointer_type" else self.type_of(self.entry(reference, "baseType"))
        if tag == "DW_TAG_enumeration_type":
            return Int(bits)
        if tag == "DW_TAG_array_type":
            return self._array(reference)
        number = self.number(reference)
        if number is not None:
            return Int(number[0])
        if tag in ("DW_TAG_structure_type", "DW_TAG_class_type") and not self.entry(reference, "name").startswith(
            "stream<"
        ):
            return self._struct(reference, bits)
        return None

    def numbers(self, reference: str, *, inside: bool = False) -> tuple[Field, ...]:
        """The integers that a type, or what it leads to, consists of in memory. No pointer `inside` it is followed."""
        text, tag = self.node(reference), self.entry(reference, "tag")
        number = self.number(reference) if text.startswith("!DIBasicType") or "DICompositeType" in text else None
        if number is not None:
            return (Field(0, *number),)
        if text.startswith("!DIDerivedType"):
            leads_on = inside and tag in ("DW_TAG_pointer_type", "DW_TAG_reference_type")
            return () if leads_on else self.numbers(self.entry(reference, "baseType"), inside=inside)
        found: list[Field] = []
        for member in re.findall(r"!\d+", self.node(self.entry(reference, "elements"))):
            if tag == "DW_TAG_array_type":
                inner = self.numbers(self.entry(reference, "baseType"), inside=True)
                size = int(self.entry(reference, "size") or 0) // 8
                count = int(self.entry(member, "count") or 0)
                found = [each.moved(at * (size // count)) for at in range(count) for each in inner]
                break
            is_part = self.entry(member, "tag") in ("DW_TAG_member", "DW_TAG_inheritance")
            if is_part and "DIFlagStaticMember" not in self.node(member):
                start = int(self.entry(member, "offset") or 0) // 8
                found += [each.moved(start) for each in self.numbers(self.entry(member, "baseType"), inside=True)]
        return tuple(found)

    def _array(self, reference: str) -> Type | None:
        of = self.type_of(self.entry(reference, "baseType"))
        for bound in reversed(re.findall(r"!\d+", self.node(self.entry(reference, "elements")))):
            count = self.entry(bound, "count")
            if of is None or not count.isdecimal():
                return None
            of = Array(int(count), of)
        return of

    def _struct(self, reference: str, bits: int) -> Type | None:
        """None if its fields do not lie where the rules of the target put them."""
        fields, offsets = [], []
        for member in re.findall(r"!\d+", self.node(self.entry(reference, "elements"))):
            tag = self.entry(member, "tag")
            if tag not in ("DW_TAG_member", "DW_TAG_inheritance") or "DIFlagStaticMember" in self.node(member):
                continue
            of = self.type_of(self.entry(member, "baseType"))
            if of is None or "DIFlagBitField" in self.node(member):
                return None
            fields.append(of)
            offsets.append(int(self.entry(member, "offset") or 0) // 8)
        found = Struct(tuple(fields))
        return found if found.offsets() == [*offsets, bits // 8] and bits else None

    def static(self, expression: str) -> Variable:
        """The variable of a DIGlobalVariableExpression."""
        reference = self.entry(expression, "var")
        location = Location(self.file(reference), int(self.entry(reference, "line") or 0))
        return Variable(self.entry(reference, "name"), location, 0, self.number(self.entry(reference, "type")))

    def full_name(self, reference: str) -> str:
        """The name of a function with its namespaces."""
        scope = self.entry(reference, "scope")
        outer = self.full_name(scope) if self.node(scope).startswith("!DINamespace") else ""
        return "::".join(part for part in (outer, self.entry(reference, "name")) if part)

    def result(self, subprogram: str) -> tuple[int, bool] | None:
        """Width and sign of what a function returns."""
        types = self.node(self.entry(self.entry(subprogram, "type"), "types"))
        first = re.match(r"!\{(!\d+)", types)
        return self.number(first.group(1)) if first else None

    def loop_start(self, reference: str) -> tuple[str, int, int] | None:
        """File, line and column of the keyword of a loop, from its metadata."""
        for inner in re.findall(r"!\d+", self.node(reference))[1:]:
            if self.node(inner).startswith("!DILocation"):
                file, line = self.file(self.entry(inner, "scope")), int(self.entry(inner, "line") or 0)
                return file, line, int(self.entry(inner, "column") or 0)
        return None
