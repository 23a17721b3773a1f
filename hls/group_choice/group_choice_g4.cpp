// SPDX-License-Identifier: Apache-2.0
#define CHOICE_GROUP 4
#include "group_choice/top.hpp"
