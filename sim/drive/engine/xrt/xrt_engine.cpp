// SPDX-License-Identifier: Apache-2.0
#include "engine/xrt/xrt_engine.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "engine/shapes.hpp"

namespace kvdrive {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kFirstBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kPage = abi::kPageBytes;
constexpr std::uint64_t kLargest = (std::uint64_t{4} << 30) - kPage;  // the runtime refuses larger buffers
constexpr std::uint32_t kNoStatus = UINT32_MAX;  // what the record holds until the kernel has written it
constexpr std::chrono::milliseconds kDeadline{30'000};
constexpr auto kSpin = std::chrono::microseconds(200);  // most jobs end in less
constexpr auto kNap = std::chrono::microseconds(50);

// Bytes of the array `out` of a job.
std::uint64_t out_bytes(const abi::AttentionJob& job) {
  if (job.mode == abi::kSparfRows) return 0;
  if (job.mode == abi::kSparfTokens) return (job.tokens + abi::kBeatBits - 1) / abi::kBeatBits * abi::kBeatBytes;
  return std::uint64_t{job.group} * job.head_dim * (job.mode == abi::kPartial ? 4 : 2);
}

std::string setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace

std::span<std::byte> XrtEngine::Memory::use(std::uint64_t bytes) {
  const std::uint64_t capacity = buffer_ ? buffer_->bytes().size() : 0;
  if (bytes > capacity) {
    const std::uint64_t wanted = std::max(bytes, std::min(std::max(2 * capacity, kFirstBytes), kLargest));
    auto larger = card_.allocate((wanted + kPage - 1) / kPage * kPage);
    if (bytes_ > 0) std::memcpy(larger->bytes().data(), data(), bytes_);
    buffer_ = std::move(larger);
  }
  bytes_ = bytes;
  return used();
}

bool XrtEngine::Memory::survive_reset() {
  const std::vector<std::byte> contents(data(), data() + bytes_);
  const std::uint64_t capacity = buffer_->bytes().size();
  const bool back = card_.reset();
  buffer_.reset();
  if (!back) return false;
  buffer_ = card_.allocate(capacity);
  std::ranges::copy(contents, data());
  buffer_->to_card(0, contents.size());
  return true;
}

XrtEngine::XrtEngine(const CardPlace& place, std::chrono::milliseconds deadline)
    : text_(read_image_text(place.image)), card_(open_card(place, text_)), deadline_(deadline) {
  const bool attends =
      std::ranges::any_of(text_.units, [](const auto& unit) { return unit.kernel.starts_with("attention_"); });
  if (!attends)
    throw std::runtime_error(place.image.string() + " has no attention kernel: make link KERNEL=attention_g4");
  if (!card_->peer_to_peer()) {
    notices_.push_back(
        "the card has no peer-to-peer memory: K and V go through host memory. On a SmartSSD enable it with "
        "`sudo xbutil p2p --enable` after each cold boot");
  }
  // No memory yet: the emulation of XRT 2.13 unmaps the buffers of all cards when the image of another one is loaded.
}

abi::AttentionJob XrtEngine::fields_at(std::uint64_t job) {
  abi::AttentionJob fields;
  std::memcpy(&fields, memory_.used().data() + job, sizeof fields);
  return fields;
}

// Units whose kernel runs the job: the one with SparF, or the smaller one without.
std::vector<std::size_t> XrtEngine::units_for(const abi::AttentionJob& fields) const {
  const bool dense = fields.mode == abi::kExact || fields.mode == abi::kPartial;
  const std::string group = "g" + std::to_string(fields.group);
  std::vector<std::size_t> found;
  for (std::size_t unit = 0; unit < text_.units.size(); ++unit) {
    const std::string& kernel = text_.units[unit].kernel;
    if (kernel == "attention_" + group || (dense && kernel == "attention_exact_" + group)) found.push_back(unit);
  }
  return found;
}

unsigned XrtEngine::Queue::units(unsigned group, unsigned head_dim) const {
  if (head_dim % abi::kHeadDimStep != 0 || group > abi::kMaxGroup) return 0;
  abi::AttentionJob job{};
  job.mode = abi::kExact;
  job.group = static_cast<std::uint8_t>(group);
  return static_cast<unsigned>(engine_.units_for(job).size());
}

std::uint32_t XrtEngine::run(std::uint64_t job) {
  start(job, {0, memory_.used().size()});
  return finish();
}

void XrtEngine::start(std::uint64_t job, Range range) {
  if (lost_) throw std::runtime_error("the card is lost: " + notices_.back());
  const abi::AttentionJob fields = fields_at(job);
  const auto units = units_for(fields);
  if (units.empty()) {
    throw std::runtime_error("the image has no kernel for " + std::to_string(fields.group) +
                             " query heads in this mode: make link KERNEL=attention_g" + std::to_string(fields.group));
  }
  const auto idle = std::ranges::find_if(units, [&](std::size_t unit) {
    return std::ranges::none_of(started_, [&](const Started& other) { return other.unit == unit; });
  });
  if (idle == units.end()) throw std::logic_error("all compute units of the card are busy");
  started_.push_back({.unit = *idle, .job = job, .range = range, .end = {}});
  try {
    launch(started_.back());
  } catch (...) {
    started_.pop_back();
    throw;
  }
}

void XrtEngine::launch(Started& started) {
  const abi::AttentionJob fields = fields_at(started.job);
  std::memcpy(memory_.used().data() + fields.result, &kNoStatus, sizeof kNoStatus);  // the status is its first field
  memory_.buffer().to_card(started.range.first, started.range.bytes);
  started.end = Clock::now() + deadline_;
  card_->start(started.unit, memory_.buffer(), started.job);
}

// Returns false when the deadline is over.
bool XrtEngine::wait(const Started& started) {
  const auto spin = Clock::now() + kSpin;
  for (;;) {
    if (card_->state(started.unit) != RunState::kRunning) return true;
    const auto now = Clock::now();
    if (now > started.end) return false;
    if (now > spin) std::this_thread::sleep_for(kNap);
  }
}

std::uint32_t XrtEngine::finish() {
  for (;;) {
    Started& started = started_.front();
    const bool ended = wait(started);
    if (ended && card_->state(started.unit) == RunState::kDone) {
      const abi::AttentionJob fields = fields_at(started.job);
      CardBuffer& buffer = memory_.buffer();
      buffer.from_card(fields.result, sizeof(abi::AttentionResult));
      std::uint32_t status = 0;
      std::memcpy(&status, buffer.bytes().data() + fields.result, sizeof status);
      if (status != kNoStatus) {
        if (fields.mode == abi::kSparfRows) buffer.from_card(fields.rows, abi::kBeatBytes);
        buffer.from_card(fields.out, out_bytes(fields));
        started_.pop_front();
        return status;
      }
    }
    repeat(started, !ended);
  }
}

// A second failure of a job, or a card that does not come back, is an error.
void XrtEngine::repeat(Started& started, bool hung) {
  const std::string unit = text_.units[started.unit].name;
  const std::string what = unit + (hung ? " did not end in time" : " ended without a result");
  const auto fail = [&](const std::string& sentence) {
    started_.clear();
    notices_.push_back(sentence);
    throw std::runtime_error(sentence);
  };
  if (started.repeated) {
    lost_ = hung;
    fail(what + " twice: check the card (xbutil examine), then start again");
  }
  started.repeated = true;
  if (!hung) {
    notices_.push_back(what + "; its job was repeated");
    launch(started);
    return;
  }
  ++resets_;
  if (!memory_.survive_reset()) {
    lost_ = true;
    fail(what + " and the card does not come back after a reset: run `xbutil reset`, then start again");
  }
  notices_.push_back(what + "; the card was reset and the job repeated");
  for (Started& other : started_) launch(other);
}

std::unique_ptr<Engine> make_xrt_engine(const std::string& name) {
  CardPlace place;
  std::string device = setting("KVDRIVE_XRT_DEVICE", "0"), image = setting("KVDRIVE_XRT_IMAGE", "");
  if (const auto colon = name.find(':'); colon != std::string::npos) {
    const auto comma = name.find(',', colon + 1);
    device = name.substr(colon + 1, comma - colon - 1);
    image = comma == std::string::npos ? "" : name.substr(comma + 1);
  }
  if (image.empty()) {
    throw std::runtime_error("engine xrt needs an image: xrt:DEVICE,X.xclbin, or KVDRIVE_XRT_IMAGE in the environment");
  }
  place.device = device;
  place.image = image;
  place.peer_to_peer = setting("KVDRIVE_XRT_P2P", "1") != "0";
  const std::string patience = setting("KVDRIVE_XRT_DEADLINE_MS", "");
  const auto deadline =
      patience.empty() ? kDeadline : std::chrono::milliseconds(std::strtoul(patience.c_str(), nullptr, 10));
  return std::make_unique<XrtEngine>(place, deadline);
}

}  // namespace kvdrive
