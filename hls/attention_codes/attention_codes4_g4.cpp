// SPDX-License-Identifier: Apache-2.0
#define CODES_TOP attention_codes4_g4
#define CODES_GROUP 4
#define CODES_BITS 4
// A word with the accumulators of 16 parts; the vendor's limit is 1024 bits if nobody says otherwise.
#define AP_INT_MAX_W 2048
#include "attention_codes/top.hpp"
