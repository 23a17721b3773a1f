// SPDX-License-Identifier: Apache-2.0
// Where the running code lies.
#pragma once

#include <filesystem>

namespace kvdrive {

// The folder of the library or program that holds this code. Shared objects that it loads lie there.
std::filesystem::path own_folder();

}  // namespace kvdrive
