// SPDX-License-Identifier: Apache-2.0
#define ATTENTION_GROUP 5
#define ATTENTION_EXACT
#include "attention/top.hpp"
