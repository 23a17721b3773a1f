// SPDX-License-Identifier: Apache-2.0
#define ATTENTION_GROUP 4
#define ATTENTION_EXACT
#include "attention/top.hpp"
