// SPDX-License-Identifier: Apache-2.0
#define ATTENTION_GROUP 2
#include "attention/top.hpp"
