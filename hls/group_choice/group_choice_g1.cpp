// SPDX-License-Identifier: Apache-2.0
#define CHOICE_GROUP 1
#include "group_choice/top.hpp"
