// SPDX-License-Identifier: Apache-2.0
#define CHOICE_GROUP 5
#include "group_choice/top.hpp"
