// SPDX-License-Identifier: Apache-2.0
// AXI4-Lite to a register file: `write` is high for one cycle with address, data and byte strobes; `read_data` must
// follow `read_address` at once, and `read` is high in the cycle in which it is taken. Every answer is OKAY.
module openhls_axi_lite #(
    parameter int ADDRESS = 4  // bits of a byte address
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               awvalid,
    output logic               awready,
    input  logic [ADDRESS-1:0] awaddr,
    input  logic               wvalid,
    output logic               wready,
    input  logic [       31:0] wdata,
    input  logic [        3:0] wstrb,
    output logic               bvalid,
    input  logic               bready,
    input  logic               arvalid,
    output logic               arready,
    input  logic [ADDRESS-1:0] araddr,
    output logic               rvalid,
    input  logic               rready,
    output logic [       31:0] rdata,
    output logic               write,
    output logic [ADDRESS-1:0] write_address,
    output logic [       31:0] write_data,
    output logic [        3:0] write_strobe,
    output logic               read,
    output logic [ADDRESS-1:0] read_address,
    input  logic [       31:0] read_data
);
  logic has_address, has_data;

  assign awready = !has_address;
  assign wready = !has_data;
  assign write = has_address && has_data && !bvalid;
  assign arready = !rvalid;
  assign read = arvalid && arready;
  assign read_address = araddr;

  always_ff @(posedge clk) begin
    if (rst) begin
      has_address <= 1'b0;
      has_data <= 1'b0;
      bvalid <= 1'b0;
      rvalid <= 1'b0;
    end else begin
      has_address <= has_address ? !write : awvalid;
      has_data <= has_data ? !write : wvalid;
      bvalid <= bvalid ? !bready : write;
      rvalid <= rvalid ? !rready : read;
    end
    if (!has_address) write_address <= awaddr;
    if (!has_data) begin
      write_data   <= wdata;
      write_strobe <= wstrb;
    end
    if (read) rdata <= read_data;
  end
endmodule
