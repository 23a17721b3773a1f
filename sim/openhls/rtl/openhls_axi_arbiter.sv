// SPDX-License-Identifier: Apache-2.0
// One of COUNT senders at a time, in turn, through an output register. `grant` numbers the sender whose word is taken
// in a cycle with `granted`.
module openhls_axi_arbiter #(
    parameter int WIDTH = 1,
    parameter int COUNT = 2,
    parameter int INDEX = COUNT > 1 ? $clog2(COUNT) : 1
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   enable,
    input  logic [COUNT*WIDTH-1:0] in_data,
    input  logic [      COUNT-1:0] in_valid,
    output logic [      COUNT-1:0] in_ready,
    output logic [      INDEX-1:0] grant,
    output logic                   granted,
    output logic [      WIDTH-1:0] out_data,
    output logic [      INDEX-1:0] out_index,
    output logic                   out_valid,
    input  logic                   out_ready
);
  logic [INDEX-1:0] latest;  // the last sender that had its turn

  always_comb begin
    grant = '0;
    for (int i = 0; i < COUNT; i++) if (in_valid[COUNT-1-i]) grant = INDEX'(COUNT - 1 - i);
    for (int i = 0; i < COUNT; i++)
      if (in_valid[COUNT-1-i] && COUNT - 1 - i > 32'(latest)) grant = INDEX'(COUNT - 1 - i);
  end

  assign granted = enable && in_valid != '0 && (!out_valid || out_ready);
  assign in_ready = COUNT'(granted) << grant;

  always_ff @(posedge clk) begin
    if (rst) begin
      out_valid <= 1'b0;
      latest <= '0;
    end else begin
      if (!out_valid || out_ready) out_valid <= granted;
      if (granted) latest <= grant;
    end
    if (granted) begin
      out_data  <= in_data[32'(grant)*WIDTH+:WIDTH];
      out_index <= grant;
    end
  end
endmodule
