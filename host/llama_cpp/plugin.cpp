// SPDX-License-Identifier: Apache-2.0
#include "plugin.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "buffer.hpp"

namespace kvdrive::llama {
namespace {

constexpr std::uint64_t kFitMargin = std::uint64_t{2} << 30;

std::atomic<void (*)(const char*)> listener{nullptr};

void report_shares(const Shares& shares) {
  char text[160];
  if (shares.read_bytes > 0) {
    std::snprintf(text, sizeof text, "steps read %.1f %% of K and V, the index counted", 100 * shares.read_share());
    report(text);
  }
  if (shares.queries > 0) {
    std::snprintf(text, sizeof text, "steps left %.2f %% of the softmax unread on average, %.2f %% at most",
                  100 * shares.unread_share(), 100 * shares.most_unread);
    report(text);
  }
}

}  // namespace

void report(const std::string& sentence) {
  if (const auto hear = listener.load(); hear != nullptr) {
    hear(sentence.c_str());
  } else {
    std::fprintf(stderr, "kvdrive: %s\n", sentence.c_str());
  }
}

void report_to(void (*hear)(const char* sentence)) { listener = hear; }

Plugin& Plugin::get() {
  static auto* plugin = new Plugin;
  return *plugin;
}

void Plugin::start(const Lookup& lookup) {
  try {
    configuration_ = read_configuration(lookup);
    drive_ = std::make_unique<SessionDrive>(configuration_);
  } catch (const std::exception& error) {
    report(error.what());
    return;
  }
  if (drive_->free_bytes() < kFitMargin) {
    report("the drive has less than 2 GiB of room, and llama.cpp's --fit does not use such a device: pass --fit off");
  }
  std::atexit([] { get().finish(); });
}

SessionDrive& Plugin::drive() {
  if (!drive_) throw std::runtime_error("there is no drive for K and V: see the message above");
  return *drive_;
}

void Plugin::add(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.insert(buffer);
}

void Plugin::remove(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
}

std::string Plugin::refusal() {
  const std::lock_guard lock(mutex_);
  for (Buffer* buffer : buffers_) {
    if (!buffer->cache.refusal().empty()) return buffer->cache.refusal();
  }
  return "";
}

KvCache& Plugin::only_cache() {
  const std::lock_guard lock(mutex_);
  KvCache* found = nullptr;
  for (Buffer* buffer : buffers_) {
    if (buffer->cache.empty()) continue;
    if (found != nullptr) throw std::runtime_error("this model has several caches, which are kept by no other process");
    found = &buffer->cache;
  }
  if (found == nullptr) throw std::runtime_error("llama.cpp has no context with K and V in the drive");
  return *found;
}

void Plugin::forget(std::uint32_t stream) {
  const std::lock_guard lock(mutex_);
  for (Buffer* buffer : buffers_) {
    if (!buffer->cache.empty()) buffer->cache.forget(stream);
  }
}

std::uint32_t Plugin::most_cells() {
  const std::lock_guard lock(mutex_);
  std::uint32_t most = 0;
  for (const Buffer* buffer : buffers_) most = std::max(most, buffer->cache.cells());
  return most;
}

std::string Plugin::statistics() {
  return "{\"graphs\": " + std::to_string(graphs) + ", \"attention_in_drive\": " + std::to_string(in_drive) +
         ", \"attention_in_host\": " + std::to_string(in_host) + ", \"drive\": " + drive().statistics() + "}";
}

void Plugin::finish() {
  if (!drive_) return;
  if (drive_->policy().groups) report_shares(drive_->shares());
  if (!configuration_.statistics.empty()) std::ofstream(configuration_.statistics) << statistics() << "\n";
  const std::lock_guard lock(mutex_);
  if (buffers_.empty()) drive_.reset();
}

}  // namespace kvdrive::llama
