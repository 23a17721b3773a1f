// SPDX-License-Identifier: Apache-2.0
// What nextpnr-ecp5 packs cells into, for simulation: the parts of a slice, and a multiplier. Registers are Yosys' own
// model. Yosys has one of a place of a slice too (TRELLIS_COMB), but its carry output is not connected.
module routed_lut (
    input [15:0] INIT,
    input A, B, C, D,
    output F
);
  assign F = INIT[{D, C, B, A}];
endmodule

// One bit of a carry chain. BREAKS: nothing comes in.
module routed_carry (
    input [15:0] INIT,
    input BREAKS, A, B, C, D, FCI,
    output F, FCO
);
  wire sum = INIT[{D, C, B, A}];
  wire made = INIT[{2'b00, B, A}];
  assign F = sum ^ (FCI & !BREAKS);
  assign FCO = sum ? FCI : made & !BREAKS;
endmodule

// One bit of a memory of 16 words.
module routed_ram (
    input [15:0] INIT,
    input A, B, C, D, WD, WAD0, WAD1, WAD2, WAD3, WRE, WCK,
    output F
);
  reg [15:0] words;
  initial words = INIT;
  always @(posedge WCK) if (WRE) words[{WAD3, WAD2, WAD1, WAD0}] <= WD;
  assign F = words[{A, C, B, D}];
endmodule

// The write port that four such bits share.
module routed_ramw (
    input A0, B0, C0, D0, A1, B1, C1, D1,
    output WADO0, WADO1, WADO2, WADO3, WDO0, WDO1, WDO2, WDO3
);
  assign {WADO3, WADO2, WADO1, WADO0} = {A0, C0, B0, D0};
  assign {WDO3, WDO2, WDO1, WDO0} = {B1, D1, A1, C1};
endmodule

// Behind two LUTs of a slice, or behind two such choices.
module routed_mux (
    input LOW, HIGH, M,
    output OFX
);
  assign OFX = M ? HIGH : LOW;
endmodule

module routed_multiplier (
    input [17:0] A, B,
    input SIGNEDA, SIGNEDB,
    output [35:0] P
);
  wire signed [18:0] a = {SIGNEDA & A[17], A};
  wire signed [18:0] b = {SIGNEDB & B[17], B};
  wire signed [37:0] product = a * b;
  assign P = product[35:0];
endmodule
