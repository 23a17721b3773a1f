// SPDX-License-Identifier: Apache-2.0
#define CODES_TOP attention_codes_g4
#define CODES_GROUP 4
#define CODES_BITS 8
#include "attention_codes/top.hpp"
