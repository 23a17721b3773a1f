// SPDX-License-Identifier: Apache-2.0
#define ATTENTION_GROUP 4
#include "attention/top.hpp"
