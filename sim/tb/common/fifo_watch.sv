// SPDX-License-Identifier: Apache-2.0
// Sits in every FIFO of a design under test: its level, and the highest level since the simulation began.
module fifo_watch #(
    parameter int unsigned DEPTH = 1
) (
    input logic clk,
    input logic rst,
    input logic in_valid,
    input logic in_ready,
    input logic out_valid,
    input logic out_ready,
    input int unsigned level
);
  int unsigned depth = DEPTH;
  int unsigned high_water = 0;

  always_ff @(posedge clk) if (!rst && level > high_water) high_water <= level;
endmodule

bind openhls_fifo fifo_watch #(
    .DEPTH(DEPTH)
) watch (
    .clk,
    .rst,
    .in_valid,
    .in_ready,
    .out_valid,
    .out_ready,
    .level(32'(held))
);

bind openhls_block_fifo fifo_watch #(
    .DEPTH(DEPTH + 1)
) watch (
    .clk,
    .rst,
    .in_valid,
    .in_ready,
    .out_valid,
    .out_ready,
    .level(32'(held) + 32'(out_valid))
);

// Sits in every FIFO whose writer takes places ahead of its words: whether there is a place to take.
module room_watch (
    input logic full
);
endmodule

bind openhls_credit_fifo room_watch rooms (.full(room == '0));
