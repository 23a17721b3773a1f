// SPDX-License-Identifier: Apache-2.0
// COUNT writers behind one AXI4 master, each with the ID of its number. Data follows in the order of the addresses, and
// answers go where their ID says.
module openhls_axi_share_write #(
    parameter int COUNT = 1,
    parameter int ID = 1,  // bits
    parameter int BUS = 32,
    parameter int WAITING = 32  // bursts whose data is still to be sent
) (
    // One writer alone needs no turns.
    // verilator lint_off UNUSEDSIGNAL
    input  logic                   clk,
    input  logic                   rst,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [      COUNT-1:0] in_awvalid,
    output logic [      COUNT-1:0] in_awready,
    input  logic [   COUNT*64-1:0] in_awaddr,
    input  logic [    COUNT*8-1:0] in_awlen,
    input  logic [      COUNT-1:0] in_wvalid,
    output logic [      COUNT-1:0] in_wready,
    input  logic [  COUNT*BUS-1:0] in_wdata,
    input  logic [COUNT*BUS/8-1:0] in_wstrb,
    input  logic [      COUNT-1:0] in_wlast,
    output logic [      COUNT-1:0] in_bvalid,
    output logic                   awvalid,
    input  logic                   awready,
    output logic [         ID-1:0] awid,
    output logic [           63:0] awaddr,
    output logic [            7:0] awlen,
    output logic                   wvalid,
    input  logic                   wready,
    output logic [        BUS-1:0] wdata,
    output logic [      BUS/8-1:0] wstrb,
    output logic                   wlast,
    input  logic                   bvalid,
    // One writer alone has no ID.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [         ID-1:0] bid
    // verilator lint_on UNUSEDSIGNAL
);
  generate
    if (COUNT == 1) begin : alone
      assign awvalid = in_awvalid;
      assign in_awready = awready;
      assign awaddr = in_awaddr;
      assign awlen = in_awlen;
      assign awid = '0;
      assign wvalid = in_wvalid;
      assign in_wready = wready;
      assign wdata = in_wdata;
      assign wstrb = in_wstrb;
      assign wlast = in_wlast;
      assign in_bvalid = bvalid;
    end else begin : several
      logic [COUNT*72-1:0] asked;
      logic [ID-1:0] grant, turn;  // whose address is taken, whose data is sent
      logic granted, ordered, room;
      for (genvar i = 0; i < COUNT; i++) begin : join_up
        assign asked[i*72+:72] = {in_awaddr[i*64+:64], in_awlen[i*8+:8]};
      end
      openhls_axi_arbiter #(
          .WIDTH(72),
          .COUNT(COUNT),
          .INDEX(ID)
      ) arbiter (
          .clk,
          .rst,
          .enable(room),
          .in_data(asked),
          .in_valid(in_awvalid),
          .in_ready(in_awready),
          .grant,
          .granted,
          .out_data({awaddr, awlen}),
          .out_index(awid),
          .out_valid(awvalid),
          .out_ready(awready)
      );
      openhls_fifo #(
          .WIDTH(ID),
          .DEPTH(WAITING)
      ) turns (
          .clk,
          .rst,
          .in_data(grant),
          .in_valid(granted),
          .in_ready(room),
          .out_data(turn),
          .out_valid(ordered),
          .out_ready(wvalid && wready && wlast)
      );
      assign wvalid = ordered && in_wvalid[turn];
      assign in_wready = COUNT'(ordered && wready) << turn;
      assign wdata = in_wdata[turn*BUS+:BUS];
      assign wstrb = in_wstrb[turn*(BUS/8)+:BUS/8];
      assign wlast = in_wlast[turn];
      assign in_bvalid = COUNT'(bvalid) << bid;
    end
  endgenerate
endmodule
