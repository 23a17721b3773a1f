// SPDX-License-Identifier: Apache-2.0
// A memory with one write port and one read port. A read takes one cycle and its word stays until the next read. Reading
// and writing one address in the same cycle reads the old word.
module openhls_ram #(
    parameter int WIDTH = 1,
    parameter int LENGTH = 2,
    parameter int ADDRESS = 1,  // bits
    // Only synthesis looks at it.
    // verilator lint_off UNUSEDPARAM
    parameter RAM_STYLE = "auto"  // block, distributed, ultra
    // verilator lint_on UNUSEDPARAM
) (
    input  logic               clk,
    input  logic               write,
    input  logic [ADDRESS-1:0] write_address,
    input  logic [  WIDTH-1:0] write_data,
    input  logic               read,
    input  logic [ADDRESS-1:0] read_address,
    output logic [  WIDTH-1:0] read_data
);
  (* ram_style = RAM_STYLE *) logic [WIDTH-1:0] words[LENGTH];

  always_ff @(posedge clk) begin
    if (write) words[write_address] <= write_data;
    if (read) read_data <= words[read_address];
  end
endmodule
