// SPDX-License-Identifier: Apache-2.0
// Shared objects of the compiled kernels, one for each source of hls/*/kernel.toml: attention_g4, gemv, ... They are
// loaded when they are first used, and made by a command where they are missing.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvdrive::hls {

// A kernel cannot be used. The text is a sentence that says what to do.
class KernelMissing : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A command that takes the name of a kernel as its last argument and prints the path of its shared object. If it ends
// with another status than 0, it prints a sentence that says what to do. Empty: no kernel can be made. To be set before
// the first use of a kernel.
void set_maker(std::vector<std::string> command);

// Returns the address of a function of the shared object of `kernel`. The object comes from the folder KVDRIVE_KERNELS
// of the environment, from the folder _kernels beside this library, or from the maker. Thread-safe. Throws
// KernelMissing.
void* find_function(const std::string& kernel, const char* function);

}  // namespace kvdrive::hls
