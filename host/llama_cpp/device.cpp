// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <cstdlib>
#include <cstring>
#include <exception>

#include "backend.hpp"
#include "buffer.hpp"
#include "plugin.hpp"
#include "versions.hpp"

namespace kvdrive::llama {
namespace {

const char* get_name(ggml_backend_dev_t) { return kDeviceName; }
const char* get_description(ggml_backend_dev_t) { return "K and V in a drive"; }

void get_memory(ggml_backend_dev_t, std::size_t* free, std::size_t* total) {
  const SessionDrive* drive = Plugin::get().drive_or_null();
  *free = drive == nullptr ? 0 : drive->free_bytes();
  *total = drive == nullptr ? 0 : drive->capacity_bytes();
}

// llama.cpp gives layers to devices of this type only.
enum ggml_backend_dev_type get_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }

void get_props(ggml_backend_dev_t device, ggml_backend_dev_props* properties) {
  std::memset(properties, 0, sizeof *properties);
  properties->name = get_name(device);
  properties->description = get_description(device);
  properties->type = get_type(device);
  get_memory(device, &properties->memory_free, &properties->memory_total);
  properties->caps.mmap_support = true;  // weights stay on the CPU, as mapped there
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) { return make_backend(device); }
ggml_backend_buffer_type_t get_buffer_type(ggml_backend_dev_t) { return buffer_type(); }
bool supports_op(ggml_backend_dev_t, const ggml_tensor* node) { return supports(node); }

// Queries, masks and indices are read where the CPU backend has put them.
bool supports_buft(ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
  return type == buffer_type() || ggml().ggml_backend_buft_is_host(type);
}

const char* registration_name(ggml_backend_reg_t) { return kDeviceName; }
std::size_t get_device_count(ggml_backend_reg_t) { return 1; }
ggml_backend_dev_t get_device(ggml_backend_reg_t, std::size_t) { return device(); }

void* get_proc_address(ggml_backend_reg_t, const char* name) {
  return std::strcmp(name, "ggml_backend_set_n_threads") == 0 ? reinterpret_cast<void*>(set_threads) : nullptr;
}

}  // namespace

ggml_backend_reg_t registration() {
  static ggml_backend_reg made = [] {
    ggml_backend_reg reg{};
    reg.api_version = GGML_BACKEND_API_VERSION;
    reg.iface.get_name = registration_name;
    reg.iface.get_device_count = get_device_count;
    reg.iface.get_device = get_device;
    reg.iface.get_proc_address = get_proc_address;
    return reg;
  }();
  return &made;
}

ggml_backend_dev_t device() {
  static ggml_backend_device made = [] {
    ggml_backend_device dev{};
    dev.iface.get_name = get_name;
    dev.iface.get_description = get_description;
    dev.iface.get_memory = get_memory;
    dev.iface.get_type = get_type;
    dev.iface.get_props = get_props;
    dev.iface.init_backend = init_backend;
    dev.iface.get_buffer_type = get_buffer_type;
    dev.iface.supports_op = supports_op;
    dev.iface.supports_buft = supports_buft;
    dev.reg = registration();
    return dev;
  }();
  return &made;
}

}  // namespace kvdrive::llama

// What ggml looks for in a library of a backend. Null, with a sentence, where this ggml is not one of those that are
// known to work: llama.cpp goes on without the drive then.
extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
  using namespace kvdrive::llama;
  try {
    find_ggml(__builtin_extract_return_addr(__builtin_return_address(0)));
    check_version();
  } catch (const std::exception& error) {
    report(std::string(error.what()) + "; K and V stay in memory");
    return nullptr;
  }
  Plugin::get().start([](const char* name) { return std::getenv(name); });
  return registration();
}
