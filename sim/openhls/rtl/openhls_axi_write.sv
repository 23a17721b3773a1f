// SPDX-License-Identifier: Apache-2.0
// Writes memory through AXI4: requests (see openhls_axi_split) and their elements in, an answer per request out.
//
// A burst is announced only when all of its data is in the buffer: a process that is slow never holds up others at the
// interconnect. Answers wait in a counter, so that a process may take them as late as it likes. An answer is `failed`:
// 1 if memory has reported an error since the start of the job.
module openhls_axi_write #(
    parameter int WIDTH = 32,
    parameter int BUS = 32,
    parameter int BURST = 64,
    parameter int OUTSTANDING = 32,
    parameter int DEPTH = 2 * BURST  // bus words: one burst is gathered while another one leaves
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             clear,  // of `failed`
    output logic             failed,
    input  logic [    127:0] request_data,
    input  logic             request_valid,
    output logic             request_ready,
    input  logic [WIDTH-1:0] element_data,
    input  logic             element_valid,
    output logic             element_ready,
    output logic             answer_data,
    output logic             answer_valid,
    input  logic             answer_ready,
    output logic             awvalid,
    input  logic             awready,
    output logic [     63:0] awaddr,
    output logic [      7:0] awlen,
    output logic             wvalid,
    input  logic             wready,
    output logic [  BUS-1:0] wdata,
    output logic [BUS/8-1:0] wstrb,
    output logic             wlast,
    input  logic             bvalid,
    // Bit 1 alone says that there was an error.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [      1:0] bresp
    // verilator lint_on UNUSEDSIGNAL
);
  localparam int LANES = BUS / WIDTH;
  localparam int LANE = LANES > 1 ? $clog2(LANES) : 1;
  localparam int COUNT = $clog2(OUTSTANDING + 1);
  localparam int GATHERED = 8;  // bursts in the buffer that are not announced yet

  logic burst_valid, burst_ready, final_burst;
  logic [63:0] address;
  logic [7:0] length, beat;
  // Words of one element have no lanes.
  // verilator lint_off UNUSEDSIGNAL
  logic [LANE-1:0] first_lane, last_lane;
  // verilator lint_on UNUSEDSIGNAL
  logic word_valid, word_ready, last_word, gathered, gathered_ready;
  logic announced_valid, announce, announced_final, answers_ready, answers_final;
  logic [63:0] announced_address;
  logic [ 7:0] announced_length;
  logic [COUNT-1:0] bursts;  // announced and not sent wholly
  logic [31:0] answers;
  logic stored_valid, stored_last, sent;

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

  // ---- elements become bus words ----

  assign last_word = beat == length;
  assign gathered = word_valid && word_ready && last_word;
  assign burst_ready = gathered;
  assign element_ready = burst_valid && word_ready && gathered_ready;
  assign sent = wvalid && wready;

  always_ff @(posedge clk) begin
    if (rst || gathered) beat <= '0;
    else if (word_valid && word_ready) beat <= beat + 1'b1;
  end

  // Outputs that are not needed have no net.
  // verilator lint_off PINCONNECTEMPTY
  generate
    if (LANES > 1) begin : narrow
      logic [LANE-1:0] lane, following;
      logic fresh, ends;  // the next element is the first of a burst; it is the last of its word
      logic [BUS-1:0] word, kept;
      logic [LANES-1:0] lanes, kept_lanes, stored_lanes;
      assign lane = fresh ? first_lane : following;
      assign ends = lane == (last_word ? last_lane : LANE'(LANES - 1));
      assign word_valid = element_valid && element_ready && ends;
      for (genvar i = 0; i < LANES; i++) begin : place
        assign word[i*WIDTH+:WIDTH] = lane == LANE'(i) ? element_data : kept[i*WIDTH+:WIDTH];
        assign lanes[i] = lane == LANE'(i) || kept_lanes[i];
        assign wstrb[i*(WIDTH/8)+:WIDTH/8] = {WIDTH / 8{stored_lanes[i]}};
      end
      always_ff @(posedge clk) begin
        if (element_valid && element_ready) begin
          kept <= word;
          following <= ends ? '0 : lane + 1'b1;
        end
        if (rst) begin
          fresh <= 1'b1;
          kept_lanes <= '0;
        end else if (element_valid && element_ready) begin
          fresh <= gathered;
          kept_lanes <= ends ? '0 : lanes;
        end
      end
      openhls_block_fifo #(
          .WIDTH(BUS + LANES + 1),
          .DEPTH(DEPTH)
      ) buffer (
          .clk,
          .rst,
          .in_data({last_word, lanes, word}),
          .in_valid(word_valid),
          .in_ready(word_ready),
          .fetch(),
          .out_data({stored_last, stored_lanes, wdata}),
          .out_valid(stored_valid),
          .out_ready(sent)
      );
    end else begin : whole
      assign word_valid = element_valid && element_ready;
      assign wstrb = '1;
      openhls_block_fifo #(
          .WIDTH(BUS + 1),
          .DEPTH(DEPTH)
      ) buffer (
          .clk,
          .rst,
          .in_data({last_word, element_data}),
          .in_valid(word_valid),
          .in_ready(word_ready),
          .fetch(),
          .out_data({stored_last, wdata}),
          .out_valid(stored_valid),
          .out_ready(sent)
      );
    end
  endgenerate

  // ---- bursts that are complete are announced and sent ----

  openhls_fifo #(
      .WIDTH(73),
      .DEPTH(GATHERED)
  ) complete (
      .clk,
      .rst,
      .in_data({final_burst, length, address}),
      .in_valid(gathered),
      .in_ready(gathered_ready),
      .out_data({announced_final, announced_length, announced_address}),
      .out_valid(announced_valid),
      .out_ready(announce)
  );

  assign announce = announced_valid && (!awvalid || awready) && answers_ready;
  assign wvalid = stored_valid && bursts != '0;
  assign wlast = stored_last;

  always_ff @(posedge clk) begin
    if (rst) begin
      awvalid <= 1'b0;
      bursts  <= '0;
    end else begin
      if (!awvalid || awready) awvalid <= announce;
      bursts <= bursts + COUNT'(announce) - COUNT'(sent && wlast);
    end
    if (announce) begin
      awaddr <= announced_address;
      awlen  <= announced_length;
    end
  end

  // ---- answers ----

  openhls_fifo #(
      .WIDTH(1),
      .DEPTH(OUTSTANDING)
  ) expected (
      .clk,
      .rst,
      .in_data(announced_final),
      .in_valid(announce),
      .in_ready(answers_ready),
      .out_data(answers_final),
      .out_valid(),
      .out_ready(bvalid)
  );
  // verilator lint_on PINCONNECTEMPTY

  assign answer_valid = answers != '0;
  assign answer_data  = failed;

  always_ff @(posedge clk) begin
    if (rst) begin
      answers <= '0;
      failed  <= 1'b0;
    end else begin
      answers <= answers + 32'(bvalid && answers_final) - 32'(answer_valid && answer_ready);
      failed  <= (failed && !clear) || (bvalid && bresp[1]);
    end
  end

`ifndef SYNTHESIS
  logic address_waits, data_waits;
  logic [71:0] asked;
  logic [BUS+BUS/8:0] offered;
  always_ff @(posedge clk) begin
    address_waits <= !rst && awvalid && !awready;
    data_waits <= !rst && wvalid && !wready;
    asked <= {awaddr, awlen};
    offered <= {wlast, wstrb, wdata};
    if (!rst && address_waits) begin
      assert (awvalid && asked == {awaddr, awlen})
      else $fatal(1, "a write address changed before it was taken");
    end
    if (!rst && data_waits) begin
      assert (wvalid && offered == {wlast, wstrb, wdata})
      else $fatal(1, "write data changed before it was taken");
    end
    if (!rst && awvalid) begin
      assert (32'(awaddr[11:0]) + (32'(awlen) + 1) * 32'(BUS / 8) <= 4096)
      else $fatal(1, "a write burst crosses 4 KB");
    end
    if (!rst && bvalid) begin
      assert (expected.out_valid)
      else $fatal(1, "a write answer that was not asked for");
    end
  end
`endif
endmodule
