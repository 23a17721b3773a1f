// SPDX-License-Identifier: Apache-2.0
// A first-in first-out queue in block RAM, or in LUTs where it is short: DEPTH words and one more in the register of the
// read port. A word comes out two cycles after it went in, then one each cycle. `fetch` is high when a word leaves the memory for that register.
module openhls_block_fifo #(
    parameter int WIDTH = 1,
    parameter int DEPTH = 512
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [WIDTH-1:0] in_data,
    input  logic             in_valid,
    output logic             in_ready,
    output logic             fetch,
    output logic [WIDTH-1:0] out_data,
    output logic             out_valid,
    input  logic             out_ready
);
  localparam int POINTER = DEPTH > 1 ? $clog2(DEPTH) : 1;
  localparam int COUNT = $clog2(DEPTH + 1);
  localparam logic [POINTER-1:0] LAST = POINTER'(DEPTH - 1);

  logic [POINTER-1:0] head, tail;
  logic [COUNT-1:0] held;
  logic push;

  assign in_ready = held != COUNT'(DEPTH);
  assign push = in_valid && in_ready;
  assign fetch = held != '0 && (!out_valid || out_ready);

  openhls_ram #(
      .WIDTH(WIDTH),
      .LENGTH(DEPTH),
      .ADDRESS(POINTER),
      .RAM_STYLE(DEPTH <= 64 ? "distributed" : "block")
  ) memory (
      .clk,
      .write(push),
      .write_address(tail),
      .write_data(in_data),
      .read(fetch),
      .read_address(head),
      .read_data(out_data)
  );

  always_ff @(posedge clk) begin
    if (rst) begin
      head <= '0;
      tail <= '0;
      held <= '0;
      out_valid <= '0;
    end else begin
      if (push) tail <= tail == LAST ? '0 : tail + 1'b1;
      if (fetch) head <= head == LAST ? '0 : head + 1'b1;
      if (push && !fetch) held <= held + 1'b1;
      if (fetch && !push) held <= held - 1'b1;
      if (fetch) out_valid <= 1'b1;
      else if (out_ready) out_valid <= 1'b0;
    end
  end
endmodule
