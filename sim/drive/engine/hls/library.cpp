// SPDX-License-Identifier: Apache-2.0
#include "engine/hls/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "engine/hls/run_program.hpp"
#include "engine/own_folder.hpp"

namespace kvdrive::hls {
namespace {

namespace fs = std::filesystem;

// False for a file that was cut short, which would stop the process as soon as it is loaded. The table of sections lies
// at the end of a shared object.
bool is_whole(const fs::path& path) {
  ElfW(Ehdr) header{};
  std::error_code none;
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  return header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize <= fs::file_size(path, none);
}

class Libraries {
 public:
  static Libraries& global() {
    static Libraries libraries;
    return libraries;
  }

  void set_maker(std::vector<std::string> command) {
    const std::lock_guard lock(mutex_);
    maker_ = std::move(command);
  }

  void* find(const std::string& kernel, const char* function) {
    const std::lock_guard lock(mutex_);
    auto found = loaded_.find(kernel);
    if (found == loaded_.end()) found = loaded_.emplace(kernel, load(kernel)).first;
    void* const address = dlsym(found->second, function);
    if (address == nullptr) {
      throw KernelMissing("the kernel " + kernel + " is of another version (it has no " + function +
                          "): install kvdrive again");
    }
    return address;
  }

 private:
  void* load(const std::string& kernel) {
    const fs::path path = path_of(kernel);
    const bool whole = is_whole(path);
    void* const library = whole ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;  // stays loaded
    if (library == nullptr) {
      const std::string why = whole ? dlerror() : "it is damaged or not there";
      throw KernelMissing("the kernel " + kernel + " cannot be loaded (" + why + "): remove " + path.string() +
                          " and start again, or install kvdrive again");
    }
    return library;
  }

  fs::path path_of(const std::string& kernel) {
    const std::string file = kernel + ".so";
    if (const char* const folder = std::getenv("KVDRIVE_KERNELS"); folder != nullptr && *folder != '\0') {
      return fs::path(folder) / file;
    }
    if (const fs::path shipped = own_folder() / "_kernels" / file; fs::exists(shipped)) return shipped;
    if (maker_.empty()) {
      throw KernelMissing("the kernel " + kernel + " is missing in " + (own_folder() / "_kernels").string() +
                          ": install kvdrive again");
    }
    std::vector<std::string> command = maker_;
    command.push_back(kernel);
    const Said said = run_program(command);
    if (said.status != 0) {
      throw KernelMissing(said.text.empty() ? "the kernel " + kernel + " was not made: start again" : said.text);
    }
    return said.text;
  }

  std::mutex mutex_;  // held while a kernel is made: other threads need that kernel, or wait for the processors
  std::vector<std::string> maker_;
  std::map<std::string, void*> loaded_;
};

}  // namespace

void set_maker(std::vector<std::string> command) { Libraries::global().set_maker(std::move(command)); }

void* find_function(const std::string& kernel, const char* function) {
  return Libraries::global().find(kernel, function);
}

}  // namespace kvdrive::hls
