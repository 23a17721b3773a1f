// SPDX-License-Identifier: Apache-2.0
#define CODES_TOP attention_codes4_g1
#define CODES_GROUP 1
#define CODES_BITS 4
#include "attention_codes/top.hpp"
