// SPDX-License-Identifier: Apache-2.0
#define ATTENTION_GROUP 5
#include "attention/top.hpp"
