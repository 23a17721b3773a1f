// SPDX-License-Identifier: Apache-2.0
// The output buffer of a pipeline that never stalls. An iteration takes the places of all words that it may write when it
// starts (`take` places, only if `room` allows), pushes words later without asking, and gives places back
// (`give_back`) for words that it did not write.
module openhls_credit_fifo #(
    parameter int WIDTH = 1,
    parameter int DEPTH = 4,
    parameter int COUNT = 3  // bits of a number of places, 0 to DEPTH
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [COUNT-1:0] take,
    input  logic [COUNT-1:0] give_back,
    output logic [COUNT-1:0] room,
    input  logic [WIDTH-1:0] in_data,
    input  logic             in_valid,
    output logic             empty,
    output logic [WIDTH-1:0] out_data,
    output logic             out_valid,
    input  logic             out_ready
);
  logic pop;
  assign pop = out_valid && out_ready;
  assign empty = !out_valid;

  always_ff @(posedge clk) begin
    if (rst) room <= COUNT'(DEPTH);
    else room <= room - take + give_back + COUNT'(pop);
  end

  // Outputs that are not needed have no net.
  // verilator lint_off PINCONNECTEMPTY
  openhls_fifo #(
      .WIDTH(WIDTH),
      .DEPTH(DEPTH)
  ) queue (
      .clk,
      .rst,
      .in_data,
      .in_valid,
      .in_ready(),  // a place was taken
      .out_data,
      .out_valid,
      .out_ready
  );
  // verilator lint_on PINCONNECTEMPTY
endmodule
