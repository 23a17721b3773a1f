// SPDX-License-Identifier: Apache-2.0
// COUNT readers behind one AXI4 master, each with the ID of its number. Data goes where its ID says.
module openhls_axi_share_read #(
    parameter int COUNT = 1,
    parameter int ID = 1  // bits
) (
    // One reader alone needs no turns.
    // verilator lint_off UNUSEDSIGNAL
    input  logic                clk,
    input  logic                rst,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [   COUNT-1:0] in_arvalid,
    output logic [   COUNT-1:0] in_arready,
    input  logic [COUNT*64-1:0] in_araddr,
    input  logic [ COUNT*8-1:0] in_arlen,
    output logic [   COUNT-1:0] in_rvalid,
    output logic                arvalid,
    input  logic                arready,
    output logic [      ID-1:0] arid,
    output logic [        63:0] araddr,
    output logic [         7:0] arlen,
    input  logic                rvalid,
    // One reader alone has no ID.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [      ID-1:0] rid
    // verilator lint_on UNUSEDSIGNAL
);
  generate
    if (COUNT == 1) begin : alone
      assign arvalid = in_arvalid;
      assign in_arready = arready;
      assign araddr = in_araddr;
      assign arlen = in_arlen;
      assign arid = '0;
      assign in_rvalid = rvalid;
    end else begin : several
      logic [COUNT*72-1:0] asked;
      for (genvar i = 0; i < COUNT; i++) begin : join_up
        assign asked[i*72+:72] = {in_araddr[i*64+:64], in_arlen[i*8+:8]};
      end
      // Outputs that are not needed have no net.
      // verilator lint_off PINCONNECTEMPTY
      openhls_axi_arbiter #(
          .WIDTH(72),
          .COUNT(COUNT),
          .INDEX(ID)
      ) arbiter (
          .clk,
          .rst,
          .enable(1'b1),
          .in_data(asked),
          .in_valid(in_arvalid),
          .in_ready(in_arready),
          .grant(),
          .granted(),
          .out_data({araddr, arlen}),
          .out_index(arid),
          .out_valid(arvalid),
          .out_ready(arready)
      );
      // verilator lint_on PINCONNECTEMPTY
      assign in_rvalid = COUNT'(rvalid) << rid;
    end
  endgenerate
endmodule
