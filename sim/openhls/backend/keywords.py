# SPDX-License-Identifier: Apache-2.0
"""Words that SystemVerilog (IEEE 1800-2017) keeps for itself, as far as C++ code may use them as names."""

_TEXT = """
alias always and assert assign assume automatic before begin bind bit break buf byte case cell chandle class clocking
config const constraint context continue cover cross deassign default define design disable dist do edge else end enum
event expect export extends extern final for force foreach forever fork function generate genvar global if iff ifnone
import in initial inout input inside instance int integer interface join large let liblist library local localparam
logic longint macromodule matches medium modport module nand negedge new nmos nor not null or output package packed
parameter posedge primitive priority program property protected pull0 pull1 pulldown pullup pure rand randc real
realtime ref reg release repeat return scalared sequence shortint shortreal showcancelled signed small solve specify
specparam static strength string strong strong0 strong1 struct super supply0 supply1 table tagged task this throughout
time timeprecision timeunit tran tri tri0 tri1 triand trior trireg type typedef union unique unsigned use var vectored
virtual void wait wand weak weak0 weak1 while wildcard wire with within wor xnor xor
"""

KEYWORDS = frozenset(_TEXT.split())
