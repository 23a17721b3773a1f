// SPDX-License-Identifier: Apache-2.0
// The multipliers of the Arora V family in the one way that scripts/pnr/synthesis.py uses them: signed and without
// registers. Used in any other way they give no value.
module MULT12X12 (
    input [11:0] A, B,
    input [1:0] CLK, CE, RESET,
    output [23:0] DOUT
);
  wire signed [23:0] product = $signed(A) * $signed(B);
  assign DOUT = |{CLK, CE, RESET} ? 24'bx : product;
endmodule

module MULTALU27X18 #(
    parameter C_SEL = 1'b1
) (
    input [26:0] A, SIA,
    input [17:0] B,
    input [25:0] D,
    input [47:0] C, CASI,
    input ACCSEL, PSEL, ASEL, PADDSUB, CSEL, CASISEL,
    input [1:0] ADDSUB, CLK, CE, RESET,
    output [47:0] DOUT
);
  wire signed [44:0] product = $signed(A) * $signed(B);
  wire other = C_SEL | |{ACCSEL, PSEL, ASEL, PADDSUB, CSEL, CASISEL, ADDSUB, CLK, CE, RESET, C, CASI, D, SIA};
  assign DOUT = other ? 48'bx : {{3{product[44]}}, product};
endmodule
