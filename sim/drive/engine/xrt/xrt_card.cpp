// SPDX-License-Identifier: Apache-2.0
// A card behind the vendor's runtime. The only file of the drive that includes its headers.
#include <sys/mman.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "engine/xrt/card.hpp"
#include "experimental/xrt_xclbin.h"
#include "xrt/xrt_bo.h"
#include "xrt/xrt_device.h"
#include "xrt/xrt_kernel.h"

namespace kvdrive {
namespace {

constexpr std::uint64_t kBufferLimit = std::uint64_t{4} << 30;  // the runtime refuses buffers of this size
constexpr std::uint64_t kBeatBytes = 64;
constexpr auto kResetPatience = std::chrono::seconds(5);
constexpr std::array kArguments{"kv", "io", "out", "job", "memory_beats"};
constexpr int kPointers = 3;

bool ended(ert_cmd_state state) {
  return state == ERT_CMD_STATE_COMPLETED || state == ERT_CMD_STATE_ERROR || state == ERT_CMD_STATE_ABORT ||
         state == ERT_CMD_STATE_TIMEOUT || state == ERT_CMD_STATE_NORESPONSE;
}

// The part of a platform's name that card and image share: xilinx_u2_gen3x4 of xilinx_u2_gen3x4_xdma_gc_2_202110_1.
std::string card_of(const std::string& platform) {
  std::size_t end = 0;
  for (int part = 0; part < 3 && end != std::string::npos; ++part) end = platform.find('_', end + (part > 0 ? 1 : 0));
  return platform.substr(0, end);
}

void require(bool condition, const std::string& sentence) {
  if (!condition) throw std::runtime_error(sentence);
}

// Compares an image with its text before it is loaded.
void check_image(const xrt::xclbin& image, const CardPlace& place, const ImageText& text) {
  const std::string name = place.image.string();
  require(image.get_xsa_name() == text.platform, name + " was built for " + image.get_xsa_name() +
                                                     ", and its text says " + text.platform +
                                                     ": run `make link` again");
  std::map<std::string, std::set<std::string>> units;
  for (const auto& kernel : image.get_kernels()) {
    for (const auto& unit : kernel.get_cus()) units[kernel.get_name()].insert(unit.get_name());
  }
  for (const ComputeUnit& unit : text.units) {
    require(units[unit.kernel].contains(unit.kernel + ":" + unit.name),
            name + " has no compute unit " + unit.kernel + ":" + unit.name + ": run `make link` again");
  }
  bool bank_used = false;
  for (const auto& bank : image.get_mems()) bank_used |= bank.get_index() == text.bank && bank.get_used();
  require(bank_used, name + " does not use memory bank " + std::to_string(text.bank) + ": run `make link` again");
}

bool is_attention(const std::string& kernel) { return kernel.starts_with("attention_"); }

void check_arguments(const xrt::xclbin& image, const std::string& kernel_name) {
  const auto arguments = image.get_kernel(kernel_name).get_args();
  bool same = arguments.size() == kArguments.size();
  for (std::size_t i = 0; same && i < arguments.size(); ++i) same = arguments[i].get_name() == kArguments[i];
  require(same, kernel_name + " of the image has other arguments than this program's: build the image again");
}

bool emulated() { return std::getenv("XCL_EMULATION_MODE") != nullptr; }

// The emulation of XRT 2.13 unmaps the memory of a peer-to-peer buffer twice: when the buffer goes, and when its card
// is closed. Nothing else may be mapped there in between, so the range is taken, without memory.
void reserve(std::span<const std::byte> range) {
  void* const begin = const_cast<std::byte*>(range.data());
  ::mmap(begin, range.size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

// Keeps an object whose destructor would wait for ever.
template <typename Object>
void keep_for_ever(std::unique_ptr<Object> object) {
  static auto& kept = *new std::vector<std::unique_ptr<Object>>;
  kept.push_back(std::move(object));
}

class XrtBuffer final : public CardBuffer {
 public:
  XrtBuffer(const xrt::device& device, std::size_t bytes, std::int32_t bank, bool peer_to_peer)
      : peer_to_peer_(peer_to_peer),
        buffer_(std::make_unique<xrt::bo>(device, bytes, peer_to_peer ? xrt::bo::flags::p2p : xrt::bo::flags::normal,
                                          bank)),
        bytes_(buffer_->map<std::byte*>(), bytes) {}
  XrtBuffer(const XrtBuffer&) = delete;
  XrtBuffer& operator=(const XrtBuffer&) = delete;
  ~XrtBuffer() override { drop(); }

  std::span<std::byte> bytes() override { return bytes_; }
  void to_card(std::size_t first, std::size_t count) override { sync(XCL_BO_SYNC_BO_TO_DEVICE, first, count); }
  void from_card(std::size_t first, std::size_t count) override { sync(XCL_BO_SYNC_BO_FROM_DEVICE, first, count); }

  xrt::bo& object() { return *buffer_; }
  void drop() {
    if (!buffer_) return;
    buffer_.reset();
    if (peer_to_peer_ && emulated()) reserve(bytes_);
    bytes_ = {};
  }

 private:
  void sync(xclBOSyncDirection way, std::size_t first, std::size_t count) {
    if (peer_to_peer_ || count == 0) return;
    const std::size_t begin = first / kBeatBytes * kBeatBytes;
    buffer_->sync(way, first + count - begin, begin);
  }

  const bool peer_to_peer_;
  std::unique_ptr<xrt::bo> buffer_;
  std::span<std::byte> bytes_;
};

// Everything that a reset takes away.
struct Session {
  xrt::device device;
  std::vector<xrt::kernel> kernels;  // by unit
  std::vector<xrt::run> runs;        // by unit
};

class XrtCard final : public Card {
 public:
  XrtCard(const CardPlace& place, const ImageText& text) : place_(place), text_(text) {
    const xrt::xclbin image(place.image.string());
    check_image(image, place, text);
    for (const ComputeUnit& unit : text.units) {
      if (is_attention(unit.kernel)) check_arguments(image, unit.kernel);
    }
    open();
    peer_to_peer_ = place.peer_to_peer && offers_peer_to_peer();
  }

  ~XrtCard() override { close(); }

  std::unique_ptr<CardBuffer> allocate(std::size_t bytes) override {
    if (bytes >= kBufferLimit) throw std::bad_alloc();
    auto buffer = std::make_unique<XrtBuffer>(session_->device, bytes, text_.bank, peer_to_peer_);
    buffers_.push_back(buffer.get());
    return std::make_unique<Owned>(*this, std::move(buffer));
  }

  bool peer_to_peer() const override { return peer_to_peer_; }

  void start(std::size_t unit, CardBuffer& memory, std::uint64_t job) override {
    auto& buffer = dynamic_cast<Owned&>(memory).buffer();
    xrt::run& run = session_->runs[unit];
    for (int pointer = 0; pointer < kPointers; ++pointer) run.set_arg(pointer, buffer.object());
    run.set_arg(kPointers, job);
    run.set_arg(kPointers + 1, static_cast<std::uint64_t>(buffer.bytes().size() / kBeatBytes));
    run.start();
  }

  RunState state(std::size_t unit) override {
    const ert_cmd_state state = session_->runs[unit].state();
    if (!ended(state)) return RunState::kRunning;
    return state == ERT_CMD_STATE_COMPLETED ? RunState::kDone : RunState::kFailed;
  }

  bool reset() override {
    session_->device.reset();
    const auto end = std::chrono::steady_clock::now() + kResetPatience;
    for (xrt::run& run : session_->runs) {
      const auto running = [&] {
        const ert_cmd_state state = run.state();
        return state == ERT_CMD_STATE_RUNNING || state == ERT_CMD_STATE_SUBMITTED || state == ERT_CMD_STATE_QUEUED;
      };
      while (running() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (running()) {
        // The runtime waits for ever for such a run when it is destroyed.
        for (XrtBuffer* buffer : buffers_) lost_.insert(buffer);
        keep_for_ever(std::move(session_));
        return false;
      }
    }
    close();
    open();
    return true;
  }

 private:
  // A buffer that tells its card when it goes.
  class Owned final : public CardBuffer {
   public:
    Owned(XrtCard& card, std::unique_ptr<XrtBuffer> buffer) : card_(card), buffer_(std::move(buffer)) {}
    ~Owned() override {
      const XrtBuffer* const buffer = buffer_.get();
      if (card_.lost_.contains(buffer_.get())) keep_for_ever(std::move(buffer_));
      std::erase(card_.buffers_, buffer);
    }
    std::span<std::byte> bytes() override { return buffer_->bytes(); }
    void to_card(std::size_t first, std::size_t count) override { buffer_->to_card(first, count); }
    void from_card(std::size_t first, std::size_t count) override { buffer_->from_card(first, count); }
    XrtBuffer& buffer() { return *buffer_; }

   private:
    XrtCard& card_;
    std::unique_ptr<XrtBuffer> buffer_;
  };

  void open() {
    session_ = std::make_unique<Session>();
    Session& session = *session_;
    const bool address = place_.device.find(':') != std::string::npos;
    session.device = address ? xrt::device(place_.device)
                             : xrt::device(static_cast<unsigned>(std::strtoul(place_.device.c_str(), nullptr, 10)));
    const std::string there = session.device.get_info<xrt::info::device::name>();
    require(card_of(there) == card_of(text_.platform), "card " + place_.device + " is a " + there + ", and " +
                                                           place_.image.string() + " was built for " + text_.platform +
                                                           ": choose the image of this card");
    const xrt::uuid uuid = session.device.load_xclbin(place_.image.string());
    for (const ComputeUnit& unit : text_.units) {
      session.kernels.emplace_back(session.device, uuid, unit.kernel + ":{" + unit.name + "}");
      session.runs.emplace_back(session.kernels.back());
      for (int pointer = 0; is_attention(unit.kernel) && pointer < kPointers; ++pointer) {
        require(session.kernels.back().group_id(pointer) == text_.bank,
                unit.kernel + " has port " + kArguments[static_cast<std::size_t>(pointer)] + " on another bank than " +
                    std::to_string(text_.bank) + ": run `make link` again");
      }
    }
  }

  void close() {
    if (!session_) return;
    session_->runs.clear();
    session_->kernels.clear();
    for (XrtBuffer* buffer : buffers_) buffer->drop();
    session_.reset();
  }

  bool offers_peer_to_peer() {
    try {
      XrtBuffer probe(session_->device, 4096, text_.bank, true);
      return probe.bytes().data() != nullptr;
    } catch (const std::exception&) {
      return false;
    }
  }

  const CardPlace place_;
  const ImageText text_;
  bool peer_to_peer_ = false;
  std::vector<XrtBuffer*> buffers_;  // those that exist
  std::set<XrtBuffer*> lost_;        // those that must not be freed
  std::unique_ptr<Session> session_;
};

}  // namespace
}  // namespace kvdrive

// Called by open_card. Throws std::runtime_error.
extern "C" kvdrive::Card* kvdrive_open_card(const kvdrive::CardPlace& place, const kvdrive::ImageText& text) {
  return new kvdrive::XrtCard(place, text);
}
