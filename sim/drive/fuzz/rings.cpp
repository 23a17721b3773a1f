// SPDX-License-Identifier: Apache-2.0
// Fuzzes the ring segment: the host writes random values to data pointers, lists, queues, doorbells and properties.
#include "nvme/rings.hpp"

#include <cstring>

#include "commands/subsystem.hpp"
#include "fuzz/fuzz.hpp"

namespace kvdrive::fuzz {
namespace {

constexpr std::uint64_t kSegmentBytes = 1 << 18;
constexpr std::uint32_t kEntries = 16;
constexpr std::uint64_t kQueues = nvme::kRingHeap, kData = kQueues + 4 * abi::kPageBytes;

class HostileHost final : public Surface {
 public:
  explicit HostileHost(const std::filesystem::path& folder) : drive_(folder / "drive.kv", make_fast_engine(), {}) {
    enable();
  }

  void one(Random& random) override {
    if (random.one_in(200)) {  // random bytes anywhere, including queues and registers
      const std::uint64_t at = random.below(kSegmentBytes / 8) * 8;
      random.fill(bytes().subspan(at, std::min<std::uint64_t>(8 * (1 + random.below(64)), kSegmentBytes - at)));
    }
    if (random.one_in(100)) {
      view_.property(nvme::kCc).store(static_cast<std::uint32_t>(random.one_in(2) ? random.bits() : 0));
      rings_.poll();
      enable();
    }
    const auto queue = static_cast<std::uint32_t>(random.below(2));
    for (std::uint64_t burst = 1 + random.below(4); burst > 0; --burst) put(random, queue);
    view_.sq_tail(queue).store(random.one_in(50) ? static_cast<std::uint32_t>(random.bits()) : tails_[queue]);
    if (!random.one_in(4)) {  // otherwise completions pile up
      for (std::uint32_t id = 0; id < 2; ++id) {
        view_.cq_head(id).store(static_cast<std::uint32_t>(random.one_in(50) ? random.bits() : random.below(kEntries)));
      }
    }
    for (int i = 0; i < 4 && rings_.poll(); ++i) {
    }
  }

 private:
  std::span<std::byte> bytes() { return memory_.bytes(); }

  void enable() {
    view_.property(nvme::kCc).store(0);
    rings_.poll();
    view_.property(nvme::kAqa).store((kEntries - 1) << 16 | (kEntries - 1));
    view_.wide_property(nvme::kAsq).store(kQueues);
    view_.wide_property(nvme::kAcq).store(kQueues + abi::kPageBytes);
    view_.property(nvme::kCc).store(0x00460061);
    rings_.poll();
    require(view_.property(nvme::kCsts).load() == 1, "the controller does not become ready after a reset");
    abi::Sqe create{};
    create.opcode = nvme::kCreateCq;
    create.cdw10 = (kEntries - 1) << 16 | 1;
    create.cdw11 = 1;
    create.prp1 = kQueues + 2 * abi::kPageBytes;
    abi::Sqe create_sq = create;
    create_sq.opcode = nvme::kCreateSq;
    create_sq.cdw11 = 1 << 16 | 1;
    create_sq.prp1 = kQueues + 3 * abi::kPageBytes;
    std::memcpy(bytes().data() + kQueues, &create, sizeof create);
    std::memcpy(bytes().data() + kQueues + sizeof create, &create_sq, sizeof create_sq);
    view_.sq_tail(0).store(2);
    rings_.poll();
    tails_[0] = 2;
    tails_[1] = 0;
  }

  void put(Random& random, std::uint32_t queue) {
    abi::Sqe command{};
    command.nsid = static_cast<std::uint32_t>(1 + random.below(3));
    command.opcode =
        queue == 0
            ? random.pick<std::uint8_t>({nvme::kIdentify, nvme::kGetLogPage, nvme::kSetFeatures, nvme::kGetFeatures,
                                         nvme::kDeleteSq, nvme::kDeleteCq, nvme::kCreateSq, nvme::kCreateCq,
                                         nvme::kMemoryRangeSet, nvme::kAsyncEventRequest, nvme::kAbort})
            : random.pick<std::uint8_t>({nvme::kNvmRead, nvme::kNvmWrite, nvme::kMemoryWrite,
                                         nvme::kNvmDatasetManagement, abi::kKvAppend, abi::kAttnSubmit,
                                         abi::kAttnSubmitRows, abi::kAttnFetch});
    command.flags = random.pick<std::uint8_t>({0, 0, 0x40, 0x40, 0x40, 0x80});
    command.prp1 = pointer(random);
    command.prp2 = command.flags == 0x40 ? descriptor_tail(random) : pointer(random);
    command.cdw10 = static_cast<std::uint32_t>(random.one_in(2) ? random.below(16) : random.bits() & 0x00ff00ff);
    command.cdw11 = static_cast<std::uint32_t>(random.below(3));
    command.cdw12 = static_cast<std::uint32_t>(random.below(64));
    random.mutate(std::as_writable_bytes(std::span(&command, 1)), random.pick({0, 0, 2}));
    lists(random);
    const std::uint64_t ring = queue == 0 ? kQueues : kQueues + 3 * abi::kPageBytes;
    std::memcpy(bytes().data() + ring + tails_[queue] * sizeof command, &command, sizeof command);
    tails_[queue] = (tails_[queue] + 1) % kEntries;
  }

  // Mostly addresses of pages in the data area, where the lists are.
  std::uint64_t pointer(Random& random) {
    if (random.one_in(16)) return random.bits();
    const std::uint64_t page = kData + random.below((kSegmentBytes - kData) / abi::kPageBytes) * abi::kPageBytes;
    return page + (random.one_in(4) ? random.below(1024) * 4 : 0);
  }
  // Builds length, reserved bytes and type.
  std::uint64_t descriptor_tail(Random& random) {
    const std::uint64_t length = random.one_in(4) ? random.bits() & 0xffffffff : random.below(64) * 16;
    return length | random.pick<std::uint64_t>({0x00, 0x00, 0x20, 0x30, 0x30, 0x10, 0x41, 0xf0}) << 56;
  }

  // Writes a few lists whose entries point at each other.
  void lists(Random& random) {
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t at = kData + random.below((kSegmentBytes - kData) / 16) * 16;
      const std::uint64_t entry[2] = {pointer(random), random.one_in(2) ? pointer(random) : descriptor_tail(random)};
      std::memcpy(bytes().data() + at, entry, sizeof entry);
    }
  }

  Drive drive_;
  nvme::Subsystem subsystem_{drive_, {.serial = "FUZZ", .nqn = {}, .slm_bytes = 1 << 18}};
  nvme::RingMemory memory_ = nvme::RingMemory::create(kSegmentBytes);
  nvme::RingView view_{memory_.bytes()};
  nvme::Rings rings_{memory_.bytes(), subsystem_, {}};
  std::uint32_t tails_[2] = {};
};

}  // namespace

std::unique_ptr<Surface> make_surface(const std::filesystem::path& folder) {
  return std::make_unique<HostileHost>(folder);
}

}  // namespace kvdrive::fuzz
