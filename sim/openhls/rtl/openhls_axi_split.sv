// SPDX-License-Identifier: Apache-2.0
// Splits requests {count, stride, address} (openhls.ir, REQUEST_FIELDS) into bursts, one each cycle.
//
// A run (stride 1) becomes bursts of at most BURST bus words. BURST is a power of two and a burst ends where the word
// number is a multiple of it, so none crosses 4 KB; only the first and the last may be shorter. Any other stride
// becomes one burst of one word per element. Elements lie at multiples of their size.
module openhls_axi_split #(
    parameter int WIDTH = 32,  // bits of an element
    parameter int BUS = 32,  // bits of a bus word, a multiple of WIDTH
    parameter int BURST = 64,  // BURST * BUS is at most 4 KB
    parameter int LANE = BUS > WIDTH ? $clog2(BUS / WIDTH) : 1  // bits of an element's place in its bus word
) (
    input  logic            clk,
    input  logic            rst,
    input  logic [   127:0] request_data,
    input  logic            request_valid,
    output logic            request_ready,
    output logic            valid,
    input  logic            ready,
    output logic [    63:0] address,  // of the first bus word
    output logic [     7:0] length,  // bus words less one
    output logic [LANE-1:0] first_lane,  // of the first element
    output logic [LANE-1:0] last_lane,  // of the last element
    output logic            final_burst  // of its request
);
  localparam int LANES = BUS / WIDTH;
  localparam int ELEMENT = $clog2(WIDTH / 8);
  localparam int WORD = $clog2(BUS / 8);
  localparam int CHUNK = $clog2(BURST);
  localparam logic [63:0] IN_WORD = (64'(BUS) >> 3) - 1'b1;
  localparam logic [63:0] IN_CHUNK = (64'(BURST * BUS) >> 3) - 1'b1;

  logic run;
  logic [63:0] at, stride;  // byte address of the next element, bytes between elements
  logic [32:0] left, room;  // words of a run, elements otherwise; words up to the end of the chunk
  // Words of one element have no lanes.
  // verilator lint_off UNUSEDSIGNAL
  logic [LANE-1:0] end_lane;  // of the last element of a run
  // verilator lint_on UNUSEDSIGNAL
  logic [32:0] elements;
  logic load, ends;

  assign request_ready = !valid || (ready && final_burst);
  assign load = request_valid && request_ready;
  assign elements = {1'b0, request_data[127:96]};

  generate
    if (LANES > 1) begin : narrow
      logic [LANE-1:0] lane;
      logic [  32:0] last;  // place of the last element, from the first word on
      assign lane = at[ELEMENT+:LANE];
      assign last = 33'(request_data[ELEMENT+:LANE]) + elements - 1'b1;
      assign first_lane = lane;
      assign last_lane = !run ? lane : final_burst ? end_lane : LANE'(LANES - 1);
      always_ff @(posedge clk) begin
        if (load) begin
          end_lane <= last[LANE-1:0];
          left <= request_data[95:64] == 32'd1 ? (last >> LANE) + 1'b1 : elements;
        end else if (valid && ready) left <= left - 33'(length) - 1'b1;
      end
    end else begin : whole
      assign end_lane = '0;
      assign first_lane = '0;
      assign last_lane = '0;
      always_ff @(posedge clk) begin
        if (load) left <= elements;
        else if (valid && ready) left <= left - 33'(length) - 1'b1;
      end
    end
  endgenerate

  assign room = 33'(BURST) - 33'((at & IN_CHUNK) >> WORD);
  assign ends = left <= room;  // the run ends in this chunk
  assign length = !run ? 8'd0 : ends ? left[7:0] - 8'd1 : room[7:0] - 8'd1;
  assign final_burst = run ? ends : left == 33'd1;
  assign address = at & ~IN_WORD;

  always_ff @(posedge clk) begin
    if (rst) valid <= 1'b0;
    else if (request_ready) valid <= request_valid;
  end

  always_ff @(posedge clk) begin
    if (load) begin
      run <= request_data[95:64] == 32'd1;
      stride <= 64'($signed(request_data[95:64])) << ELEMENT;
      at <= request_data[63:0];
    end else if (valid && ready) begin
      at <= run ? ((at >> (CHUNK + WORD)) + 1'b1) << (CHUNK + WORD) : at + stride;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk)
    if (!rst && load) begin
      assert (request_data[127:96] != '0)
      else $fatal(1, "a request for no element");
      assert (request_data[63:0] >> ELEMENT << ELEMENT == request_data[63:0])
      else $fatal(1, "an element that is not at a multiple of its size");
    end
`endif
endmodule
