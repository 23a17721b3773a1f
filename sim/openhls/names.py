# SPDX-License-Identifier: Apache-2.0
"""Names that are unique and legal in SystemVerilog."""

from __future__ import annotations

import re

_WORDS = """
accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind bins
binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking cmos config const
constraint context continue cover covergroup coverpoint cross deassign default defparam design disable dist do edge
else end endcase endchecker endclass endclocking endconfig endfunction endgenerate endgroup endinterface endmodule
endpackage endprimitive endprogram endproperty endsequence endspecify endtable endtask enum event eventually expect
export extends extern final first_match for force foreach forever fork forkjoin function generate genvar global highz0
highz1 if iff ifnone ignore_bins illegal_bins implements implies import incdir include initial inout input inside
instance int integer interconnect interface intersect join join_any join_none large let liblist library local
localparam logic longint macromodule matches medium modport module nand negedge nettype new nexttime nmos nor
noshowcancelled not notif0 notif1 null or output package packed parameter pmos posedge primitive priority program
property protected pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase
randsequence rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1
s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled signed small
soft solve specify specparam static string strong strong0 strong1 struct super supply0 supply1 sync_accept_on
sync_reject_on table tagged task this throughout time timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand
trior trireg type typedef union unique unique0 unsigned until until_with untyped use uwire var vectored virtual void
wait wait_order wand weak weak0 weak1 while wildcard wire with within wor xnor xor
"""
KEYWORDS = frozenset(_WORDS.split())  # of IEEE 1800-2017, annex B
_LEFT_TO_NETLIST = frozenset({"before", "bins"})  # which puts n_ before a keyword


class Names:
    """The names of a process."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        """`wish`, or it with a number."""
        name = re.sub(r"\W+", "_", re.sub(r"(\.(i|sroa|0|addr|lcssa))+(?=\.|\d|$)", "", wish)).strip("_") or "v"
        name = f"v{name}" if name[0].isdigit() or name in KEYWORDS - _LEFT_TO_NETLIST else name
        count = self._used.get(name)
        self._used[name] = 0 if count is None else count + 1
        return name if count is None else self.fresh(f"{name}_{count + 1}")


def cpp_name(linker_name: str) -> str:
    """The last name in a mangled one. Each name there has its length before it; `Li16E` is a template argument."""
    found = linker_name.rsplit(".", 1)[-1]
    length = re.compile(r"(?<!\d)(?<!L[a-z])\d+")
    at = 0
    while match := length.search(linker_name, at):
        at, end = match.end(), match.end() + int(match.group())
        name = linker_name[at:end]
        if name.isidentifier() and end <= len(linker_name):
            at = end
            if linker_name[end : end + 1] in ("", "E") or match.start() == len("_Z"):
                found = name
    return found
