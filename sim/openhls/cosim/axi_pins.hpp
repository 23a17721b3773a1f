// SPDX-License-Identifier: Apache-2.0
// The pins of an AXI4 master of a verilated model.
#pragma once

#include "ports.hpp"

namespace openhls {

struct AxiPins {
  const char *name;
  unsigned bytes;  // of a bus word
  struct Address {
    CData *valid, *ready, *id, *len, *size, *burst;
    QData *addr;
  } ar, aw;
  CData *rvalid, *rready, *rid, *rresp, *rlast;
  CData *wvalid, *wready, *wlast;
  CData *bvalid, *bready, *bid, *bresp;
  Port rdata, wdata, wstrb;
};

// The pins of `top.m_axi_<bundle>_*`, `bytes` wide.
#define OPENHLS_AXI_ADDRESS(top, bundle, ch)                                                                      \
  {&(top).m_axi_##bundle##_##ch##VALID, &(top).m_axi_##bundle##_##ch##READY, &(top).m_axi_##bundle##_##ch##ID,    \
   &(top).m_axi_##bundle##_##ch##LEN,   &(top).m_axi_##bundle##_##ch##SIZE,  &(top).m_axi_##bundle##_##ch##BURST, \
   &(top).m_axi_##bundle##_##ch##ADDR}
#define OPENHLS_AXI_PINS(top, bundle, bytes)                                                           \
  openhls::AxiPins {                                                                                   \
    #bundle, bytes, OPENHLS_AXI_ADDRESS(top, bundle, AR), OPENHLS_AXI_ADDRESS(top, bundle, AW),        \
        &(top).m_axi_##bundle##_RVALID, &(top).m_axi_##bundle##_RREADY, &(top).m_axi_##bundle##_RID,   \
        &(top).m_axi_##bundle##_RRESP, &(top).m_axi_##bundle##_RLAST, &(top).m_axi_##bundle##_WVALID,  \
        &(top).m_axi_##bundle##_WREADY, &(top).m_axi_##bundle##_WLAST, &(top).m_axi_##bundle##_BVALID, \
        &(top).m_axi_##bundle##_BREADY, &(top).m_axi_##bundle##_BID, &(top).m_axi_##bundle##_BRESP,    \
        openhls::port("RDATA", 8 * (bytes), (top).m_axi_##bundle##_RDATA),                             \
        openhls::port("WDATA", 8 * (bytes), (top).m_axi_##bundle##_WDATA),                             \
        openhls::port("WSTRB", (bytes), (top).m_axi_##bundle##_WSTRB)                                  \
  }

}  // namespace openhls
