// SPDX-License-Identifier: Apache-2.0
#define CODES_GROUP 4
#include "attention_codes/top.hpp"
