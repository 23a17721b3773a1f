// SPDX-License-Identifier: Apache-2.0
// The first four words of the register file, as Vitis lays them out:
//   0x00  0 ap_start (set by writing 1, cleared at ap_ready), 1 ap_done and 3 ap_ready (cleared by reading), 2 ap_idle,
//         7 auto_restart, 9 interrupt
//   0x04  0 interrupts on
//   0x08  enables: 0 done, 1 ready
//   0x0c  pending: 0 done, 1 ready; writing 1 toggles
module openhls_control #(
    parameter int ADDRESS = 4
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               write,
    // Words are addressed, and most of their bits are not used.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [ADDRESS-1:0] write_address,
    input  logic [       31:0] write_data,
    input  logic [        3:0] write_strobe,
    input  logic               read,
    input  logic [ADDRESS-1:0] read_address,
    // verilator lint_on UNUSEDSIGNAL
    output logic [       31:0] read_data,
    output logic               start,
    input  logic               done,
    input  logic               ready,
    input  logic               idle,
    // The vendor's kernels have this name.
    // verilator lint_off SYMRSVDWORD
    output logic               interrupt
    // verilator lint_on SYMRSVDWORD
);
  localparam logic [ADDRESS-3:0] CONTROL = 0, GLOBAL = 1, ENABLE = 2, PENDING = 3;

  logic auto_restart, was_done, was_ready, global_enable, put;
  logic [1:0] enable, pending, toggle;
  logic [ADDRESS-3:0] written, wanted;

  assign written = write_address[ADDRESS-1:2];
  assign wanted = read_address[ADDRESS-1:2];
  assign put = write && write_strobe[0];
  assign toggle = put && written == PENDING ? write_data[1:0] : 2'd0;
  assign interrupt = global_enable && pending != '0;

  always_comb begin
    read_data = '0;
    case (wanted)
      CONTROL: begin
        read_data[3:0] = {was_ready, idle, was_done, start};
        read_data[7]   = auto_restart;
        read_data[9]   = interrupt;
      end
      GLOBAL: read_data[0] = global_enable;
      ENABLE: read_data[1:0] = enable;
      PENDING: read_data[1:0] = pending;
      default: ;
    endcase
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      start <= 1'b0;
      auto_restart <= 1'b0;
      was_done <= 1'b0;
      was_ready <= 1'b0;
      global_enable <= 1'b0;
      enable <= '0;
      pending <= '0;
    end else begin
      if (put && written == CONTROL && write_data[0]) start <= 1'b1;
      else if (ready) start <= auto_restart;
      if (put && written == CONTROL) auto_restart <= write_data[7];
      if (put && written == GLOBAL) global_enable <= write_data[0];
      if (put && written == ENABLE) enable <= write_data[1:0];
      was_done  <= done || (was_done && !(read && wanted == CONTROL));
      was_ready <= ready || (was_ready && !(read && wanted == CONTROL));
      pending   <= ({ready, done} & enable) | (pending ^ toggle);
    end
  end
endmodule
