// SPDX-License-Identifier: Apache-2.0
// A memory with two ports, each of which reads or writes in a cycle. A read takes one cycle and its word stays until the
// next read of that port. The two ports never write one address, or read what the other one writes, in the same cycle.
module openhls_ram_two_ports #(
    parameter int WIDTH = 1,
    parameter int LENGTH = 2,
    parameter int ADDRESS = 1,  // bits
    // Only synthesis looks at it.
    // verilator lint_off UNUSEDPARAM
    parameter RAM_STYLE = "auto"  // block, distributed, ultra
    // verilator lint_on UNUSEDPARAM
) (
    input  logic               clk,
    input  logic               write_0,
    input  logic               read_0,
    input  logic [ADDRESS-1:0] address_0,
    input  logic [  WIDTH-1:0] write_data_0,
    output logic [  WIDTH-1:0] read_data_0,
    input  logic               write_1,
    input  logic               read_1,
    input  logic [ADDRESS-1:0] address_1,
    input  logic [  WIDTH-1:0] write_data_1,
    output logic [  WIDTH-1:0] read_data_1
);
  (* ram_style = RAM_STYLE *) logic [WIDTH-1:0] words[LENGTH];

  always_ff @(posedge clk) begin
    if (write_0) words[address_0] <= write_data_0;
    else if (read_0) read_data_0 <= words[address_0];
  end

  always_ff @(posedge clk) begin
    if (write_1) words[address_1] <= write_data_1;
    else if (read_1) read_data_1 <= words[address_1];
  end
endmodule
