// SPDX-License-Identifier: Apache-2.0
// Reads memory through AXI4: requests in (see openhls_axi_split), their elements out, in order, one each cycle.
//
// A burst is asked for only when the buffer has room for all of it, so read data never has to wait and RREADY is 1.
// Bursts count as outstanding until their last element is taken. An error response sets `failed`; data goes on flowing.
module openhls_axi_read #(
    parameter int WIDTH = 32,
    parameter int BUS = 32,
    parameter int BURST = 64,
    parameter int OUTSTANDING = 32,
    parameter int DEPTH = BURST * OUTSTANDING < 512 ? BURST * OUTSTANDING : 512  // bus words; a block RAM has 512
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             clear,  // of `failed`
    output logic             failed,
    input  logic [    127:0] request_data,
    input  logic             request_valid,
    output logic             request_ready,
    output logic [WIDTH-1:0] element_data,
    output logic             element_valid,
    input  logic             element_ready,
    output logic             arvalid,
    input  logic             arready,
    output logic [     63:0] araddr,
    output logic [      7:0] arlen,
    input  logic             rvalid,
    input  logic [  BUS-1:0] rdata,
    // Bit 1 alone says that there was an error.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [      1:0] rresp,
    // verilator lint_on UNUSEDSIGNAL
    input  logic             rlast
);
  localparam int LANES = BUS / WIDTH;
  localparam int LANE = LANES > 1 ? $clog2(LANES) : 1;
  localparam int ROOM = $clog2(DEPTH + 1);
  localparam int COUNT = $clog2(OUTSTANDING + 1);

  // Words of one element have no lanes, and reading needs no last burst.
  // verilator lint_off UNUSEDSIGNAL
  logic burst_valid, burst_ready, issue, final_burst;
  logic [63:0] address;
  logic [7:0] length;
  logic [LANE-1:0] first_lane, last_lane;
  // verilator lint_on UNUSEDSIGNAL
  logic [ROOM-1:0] room;
  logic [COUNT-1:0] outstanding;
  logic stored_valid, stored_ready, stored_last, fetch, taken;
  logic [BUS-1:0] stored;

  openhls_axi_split #(
      .WIDTH(WIDTH),
      .BUS(BUS),
      .BURST(BURST)
  ) split (
      .clk,
      .rst,
      .request_data,
      .request_valid,
      .request_ready,
      .valid(burst_valid),
      .ready(burst_ready),
      .address,
      .length,
      .first_lane,
      .last_lane,
      .final_burst
  );

  assign burst_ready = (!arvalid || arready) && room >= ROOM'(BURST) && outstanding != COUNT'(OUTSTANDING);
  assign issue = burst_valid && burst_ready;
  assign taken = stored_valid && stored_ready && stored_last;

  always_ff @(posedge clk) begin
    if (rst) begin
      arvalid <= 1'b0;
      room <= ROOM'(DEPTH);
      outstanding <= '0;
      failed <= 1'b0;
    end else begin
      if (!arvalid || arready) arvalid <= issue;
      room <= room - (issue ? ROOM'(length) + 1'b1 : '0) + ROOM'(fetch);
      outstanding <= outstanding + COUNT'(issue) - COUNT'(taken);
      failed <= (failed && !clear) || (rvalid && rresp[1]);
    end
    if (issue) begin
      araddr <= address;
      arlen  <= length;
    end
  end

  // Outputs that are not needed have no net.
  // verilator lint_off PINCONNECTEMPTY
  openhls_block_fifo #(
      .WIDTH(BUS + 1),
      .DEPTH(DEPTH)
  ) buffer (
      .clk,
      .rst,
      .in_data({rlast, rdata}),
      .in_valid(rvalid),
      .in_ready(),  // room was kept
      .fetch,
      .out_data({stored_last, stored}),
      .out_valid(stored_valid),
      .out_ready(stored_ready)
  );

  generate
    if (LANES > 1) begin : narrow
      logic [LANE-1:0] first, last, lane, following;
      logic fresh, ends;  // the next element is the first of a burst; it is the last of its word
      openhls_fifo #(
          .WIDTH(2 * LANE),
          .DEPTH(OUTSTANDING)
      ) lanes (
          .clk,
          .rst,
          .in_data({first_lane, last_lane}),
          .in_valid(issue),
          .in_ready(),  // it holds what is outstanding
          .out_data({first, last}),
          .out_valid(),
          .out_ready(taken)
      );
      assign lane = fresh ? first : following;
      assign ends = lane == (stored_last ? last : LANE'(LANES - 1));
      assign element_data = stored[lane*WIDTH+:WIDTH];
      assign stored_ready = element_ready && ends;
      always_ff @(posedge clk) begin
        if (rst) fresh <= 1'b1;
        else if (stored_valid && element_ready) fresh <= stored_last && ends;
        if (stored_valid && element_ready) following <= ends ? '0 : lane + 1'b1;
      end
    end else begin : whole
      assign element_data = stored;
      assign stored_ready = element_ready;
    end
  endgenerate
  // verilator lint_on PINCONNECTEMPTY
  assign element_valid = stored_valid;

`ifndef SYNTHESIS
  logic waiting;
  logic [71:0] asked;
  always_ff @(posedge clk) begin
    waiting <= !rst && arvalid && !arready;
    asked   <= {araddr, arlen};
    if (!rst && waiting) begin
      assert (arvalid && asked == {araddr, arlen})
      else $fatal(1, "a read address changed before it was taken");
    end
    if (!rst && arvalid) begin
      assert (32'(araddr[11:0]) + (32'(arlen) + 1) * 32'(BUS / 8) <= 4096)
      else $fatal(1, "a read burst crosses 4 KB");
    end
    if (!rst && rvalid) begin
      assert (outstanding != '0 && buffer.in_ready)
      else $fatal(1, "read data that was not asked for");
    end
  end
`endif
endmodule
