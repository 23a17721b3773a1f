// SPDX-License-Identifier: Apache-2.0
#include "ggml_functions.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace kvdrive::llama {
namespace {

GgmlFunctions functions;

// The library's handle, whose symbols are those of the library and of its dependencies. RTLD_DEFAULT for a program
// that holds ggml itself.
void* handle_of(const void* caller) {
  Dl_info found{};
  if (dladdr(caller, &found) == 0 || found.dli_fname == nullptr) return RTLD_DEFAULT;
  void* handle = dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD);  // stays open: it is loaded as long as this library
  return handle == nullptr ? RTLD_DEFAULT : handle;
}

template <typename Function>
void find(void* handle, const char* name, Function& function) {
  void* symbol = dlsym(handle, name);
  if (symbol == nullptr) symbol = dlsym(RTLD_DEFAULT, name);
  if (symbol == nullptr) {
    throw std::runtime_error(std::string("this llama.cpp has no function ") + name +
                             ": use one that docs/guide/llama-cpp.md names, built with shared libraries");
  }
  function = reinterpret_cast<Function>(symbol);
}

}  // namespace

void find_ggml(const void* caller) {
  void* handle = handle_of(caller);
#define KVDRIVE_FIND(name) find(handle, #name, functions.name);
  KVDRIVE_GGML_FUNCTIONS(KVDRIVE_FIND)
#undef KVDRIVE_FIND
}

const GgmlFunctions& ggml() { return functions; }

}  // namespace kvdrive::llama
