// SPDX-License-Identifier: Apache-2.0
// A first-in first-out queue of exactly DEPTH words. The oldest word is on `out_data` while `out_valid` is high; a word
// moves in a cycle with valid and ready high. `out_valid` and `in_ready` depend on the state alone.
module openhls_fifo #(
    parameter int WIDTH = 1,
    parameter int DEPTH = 2
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [WIDTH-1:0] in_data,
    input  logic             in_valid,
    output logic             in_ready,
    output logic [WIDTH-1:0] out_data,
    output logic             out_valid,
    input  logic             out_ready
);
  localparam int POINTER = DEPTH > 1 ? $clog2(DEPTH) : 1;
  localparam int COUNT = $clog2(DEPTH + 1);
  localparam logic [POINTER-1:0] LAST = POINTER'(DEPTH - 1);

  (* ram_style = "distributed" *) logic [WIDTH-1:0] words[DEPTH];
  logic [POINTER-1:0] head, tail;
  logic [COUNT-1:0] held;
  logic push, pop;

  assign push = in_valid && in_ready;
  assign pop = out_valid && out_ready;
  assign in_ready = held != COUNT'(DEPTH);
  assign out_valid = held != '0;
  assign out_data = words[head];

  always_ff @(posedge clk) begin
    if (push) words[tail] <= in_data;
    if (rst) begin
      head <= '0;
      tail <= '0;
      held <= '0;
    end else begin
      if (push) tail <= tail == LAST ? '0 : tail + 1'b1;
      if (pop) head <= head == LAST ? '0 : head + 1'b1;
      if (push && !pop) held <= held + 1'b1;
      if (pop && !push) held <= held - 1'b1;
    end
  end
endmodule
