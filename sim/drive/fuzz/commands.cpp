// SPDX-License-Identifier: Apache-2.0
// Fuzzes the commands and properties of a controller: random commands, and valid ones with a few changed bytes.
#include <cstring>
#include <optional>

#include "attention/head.hpp"
#include "commands/subsystem.hpp"
#include "commands/table.hpp"
#include "crc32c.hpp"
#include "fuzz/fuzz.hpp"
#include "nvme/controller.hpp"

namespace kvdrive::fuzz {
namespace {

using nvme::QueueId;

class Commands final : public Surface {
 public:
  explicit Commands(const std::filesystem::path& folder)
      : drive_(folder / "drive.kv", make_fast_engine(), small_drive()) {
    require(controller_.set_property(nvme::kCc, 4, 0x00460061) == abi::kSuccess, "the controller cannot be enabled");
    connect();
  }

  void one(Random& random) override {
    if (random.one_in(500)) return properties(random);
    if (random.one_in(20'000)) {
      drive_.inject(
          {random.pick({FaultKind::kReadUncorrectable, FaultKind::kProgramFail, FaultKind::kEraseFail, FaultKind::kFull,
                        FaultKind::kLostCompletion, FaultKind::kCommandTimeout, FaultKind::kEngineHang}),
           random.below(4), random.below(3), 0});
    }
    const auto queue = static_cast<QueueId>(random.below(2));
    abi::Sqe command = queue == 0 ? admin(random) : io(random);
    command.cid = static_cast<std::uint16_t>(random.bits());
    random.mutate(std::as_writable_bytes(std::span(&command, 1)), random.pick({0, 0, 1, 3}));
    const nvme::Transfer transfer = controller_.transfer(queue, command);
    nvme::DataBuffer data;
    if (transfer.direction == nvme::Direction::kToController) {
      data.in = std::span(payload_).first(
          std::min<std::uint64_t>(transfer.bytes.value_or(random.below(512)), payload_.size()));
      if (random.one_in(8)) data.in = data.in.first(random.below(data.in.size() + 1));
    } else if (transfer.direction == nvme::Direction::kToHost) {
      data.room = random.one_in(8) ? random.below(8192) : transfer.bytes.value_or(random.below(512));
    }
    if (command.nsid == abi::kNvm && command.opcode == abi::kKvAppend && !random.one_in(8)) {
      command.cdw14 = crc32c(data.in);
    }
    if (command.nsid == abi::kCp && command.opcode == abi::kAttnSubmit) command.cdw14 = crc32c(data.in);
    if (command.nsid == abi::kCp && command.opcode == abi::kFfnSubmit) command.cdw13 = crc32c(data.in);
    if (command.nsid == abi::kCp && command.opcode == abi::kAttnSubmitRows) command.cdw12 = crc32c(data.in);
    const auto response = controller_.execute(queue, command, data);
    if (!response) return;
    require(response->cqe.cid == command.cid, "a completion has another command's identifier");
    require(response->data.size() <= data.room, "a reply is longer than the host's buffer");
    require(response->status() == abi::kSuccess || response->data.empty(), "a failed command sent data");
    const bool part = queue == 1 && command.nsid == nvme::kNsidValues && command.opcode == nvme::kValueStore;
    if (part && response->cqe.result != 0) upload_ = response->cqe.result;
    if (queue == 1 && command.opcode == abi::kKvAppend && response->status() == abi::kSuccess) ++sequence_;
    const bool trims = command.opcode == abi::kSessionTrim || command.opcode == abi::kSessionErase;
    if (queue == 1 && trims && command.cdw10 == 0) sequence_ = 0;
    if (queue == 0 && (command.opcode == nvme::kFormatNvm || command.opcode == nvme::kSanitize)) sequence_ = 0;
  }

 private:
  void connect() {
    controller_.connect_queue(0, 32);
    controller_.connect_queue(1, 128);
  }

  void properties(Random& random) {
    controller_.set_property(static_cast<std::uint32_t>(random.below(0x40)), random.pick({1u, 4u, 8u}), random.bits());
    controller_.property(static_cast<std::uint32_t>(random.below(0x40)), random.pick({4u, 8u}));
    controller_.set_property(nvme::kCc, 4, 0);
    controller_.set_property(nvme::kCc, 4, 0x00460061);
    require(controller_.ready(), "the controller does not become ready after a reset");
    connect();
  }

  abi::Sqe admin(Random& random) {
    abi::Sqe command{};
    // Mostly opcodes of the table, except those that drop everything; sometimes any opcode.
    command.opcode = random.one_in(12) ? static_cast<std::uint8_t>(random.bits()) : any_row(random, true).opcode;
    const bool forgets = command.opcode == nvme::kFormatNvm || command.opcode == nvme::kSanitize;
    if (forgets) command.opcode = nvme::kIdentify;
    if (random.one_in(1000)) command.opcode = random.pick<std::uint8_t>({nvme::kFormatNvm, nvme::kSanitize});
    command.nsid = static_cast<std::uint32_t>(random.below(6));
    command.cdw10 = static_cast<std::uint32_t>(random.one_in(2) ? random.below(0x20) : random.bits() & 0x01ff00ff);
    command.cdw11 = static_cast<std::uint32_t>(random.below(4) << (random.one_in(2) ? 24 : 0));
    command.cdw12 = random.one_in(4) ? static_cast<std::uint32_t>(random.bits()) : 0;
    if (command.opcode == nvme::kMemoryRangeSet) {
      const nvme::MemoryRange range{
          .nsid = nvme::kNsidMemory, .length = 1 << 16, .start = random.below(4) << 16, .reserved = {}};
      std::memcpy(payload_.data(), &range, sizeof range);
      command.cdw11 = 1;
    }
    return command;
  }

  abi::Sqe io(Random& random) {
    random.fill(std::span(payload_).first(4096));
    for (std::size_t i = 1; i < 4096; i += 2) payload_[i] &= std::byte{0xbf};  // makes binary16 values finite
    abi::Sqe command{};
    command.nsid = static_cast<std::uint32_t>(1 + random.below(4));
    switch (random.below(11)) {
      case 0:
      case 1:
        return std::bit_cast<abi::Sqe>(append(random));
      case 2:
        if (random.one_in(3)) return std::bit_cast<abi::Sqe>(rows(random));
        return std::bit_cast<abi::Sqe>(attention(random));
      case 3: {
        abi::AttnFetch fetch{};
        fetch.opcode = abi::kAttnFetch;
        fetch.nsid = abi::kCp;
        fetch.ticket = static_cast<std::uint32_t>(random.below(512));
        fetch.data_bytes = sizeof(abi::AttentionResult) + 128;
        return std::bit_cast<abi::Sqe>(fetch);
      }
      case 4: {
        command.nsid = abi::kNvm;
        command.opcode = random.pick<std::uint8_t>({abi::kSessionTrim, abi::kSessionFork});
        if (random.one_in(20)) command.opcode = abi::kSessionErase;
        command.cdw2 = 1;
        if (random.one_in(5)) {
          command.opcode = abi::kSessionRemove;
          command.cdw10 = random.one_in(8) ? static_cast<std::uint32_t>(random.bits()) : 32;
          command.cdw11 = 32 * static_cast<std::uint32_t>(1 + random.below(4));
          command.cdw12 = static_cast<std::uint32_t>(random.below(400));
          return command;
        }
        command.cdw10 = static_cast<std::uint32_t>(random.below(60));
        command.cdw11 = command.opcode == abi::kSessionFork ? static_cast<std::uint32_t>(random.below(60)) : 0;
        return command;
      }
      case 5:
      case 6:
        command.nsid = abi::kNvm;
        command.opcode = random.pick<std::uint8_t>(
            {nvme::kNvmRead, nvme::kNvmWrite, nvme::kNvmWriteZeroes, nvme::kNvmDatasetManagement, nvme::kNvmFlush});
        command.cdw10 = static_cast<std::uint32_t>(random.below(1100));
        command.cdw12 = static_cast<std::uint32_t>(random.below(8) | random.below(2) << 30);
        return command;
      case 7:
        command.nsid = nvme::kNsidMemory;
        command.opcode = random.pick<std::uint8_t>({nvme::kMemoryRead, nvme::kMemoryWrite, nvme::kMemoryFill});
        command.cdw10 = static_cast<std::uint32_t>(random.below(1 << 18)) & ~3u;
        command.cdw12 = static_cast<std::uint32_t>(random.below(8192)) & ~3u;
        return command;
      case 8:
        command.nsid = abi::kCp;
        command.opcode = nvme::kExecuteProgram;
        command.cdw2 = static_cast<std::uint32_t>(random.below(4) | random.below(4) << 16);
        command.cdw12 = static_cast<std::uint32_t>(random.below(1 << 10)) * 64;
        return command;
      case 9:
        return std::bit_cast<abi::Sqe>(value(random));
      default:
        random.fill(std::as_writable_bytes(std::span(&command, 1)));
        command.nsid = static_cast<std::uint32_t>(random.below(6));
        if (random.one_in(2)) {  // a command of the table with random fields
          const nvme::Command& row = any_row(random, false);
          command.opcode = row.opcode;
          command.nsid = row.nsid;
        }
        return command;
    }
  }

  nvme::ValueCommand value(Random& random) {
    nvme::ValueCommand command{};
    command.nsid = nvme::kNsidValues;
    command.opcode = random.pick<std::uint8_t>({nvme::kValueStore, nvme::kValueStore, nvme::kValueRetrieve,
                                                nvme::kValueList, nvme::kValueDelete, nvme::kValueExist});
    command.key_low[0] = static_cast<std::uint8_t>(random.below(4));
    command.key_bytes = static_cast<std::uint8_t>(random.pick({1, 2, 16, 0, 17}));
    const bool data = (command.opcode & 3) != 0;
    command.size =
        data ? static_cast<std::uint32_t>(random.one_in(2) ? 4096 * random.below(4) : random.below(9000)) : 0;
    if (command.opcode == nvme::kValueStore) {
      command.options = static_cast<std::uint8_t>(random.pick({0, 0, 1, 2, 3, 0x40, 0x80, 0x80, 0x80, 0x82}));
    } else if (command.opcode == nvme::kValueRetrieve) {
      command.options = static_cast<std::uint8_t>(random.pick({0, 1, 0x40, 0x80, 0xc0}));
    }
    if (command.options & 0x80) {
      command.offset = static_cast<std::uint32_t>(random.one_in(4) ? random.below(20'000) : 4096 * random.below(4));
    }
    if (command.options & nvme::kStorePart && command.opcode == nvme::kValueStore) {
      command.total = static_cast<std::uint32_t>(random.one_in(8) ? random.bits() : 16'384);
      command.upload = static_cast<std::uint16_t>(command.offset == 0 ? 0 : upload_);
    }
    return command;
  }

  static const nvme::Command& any_row(Random& random, bool admin) {
    const auto rows = nvme::all_commands();
    while (true) {
      const nvme::Command& row = rows[random.below(rows.size())];
      if ((row.nsid == 0) == admin) return row;
    }
  }

  abi::KvAppend append(Random& random) {
    abi::KvAppend append{};
    append.opcode = abi::kKvAppend;
    append.nsid = abi::kNvm;
    append.session = static_cast<std::uint32_t>(1 + random.below(2));
    append.heads = 1;
    append.tokens = static_cast<std::uint16_t>(1 + random.below(40));
    append.kind = static_cast<std::uint8_t>(random.below(2));
    append.row_bytes = 64;
    append.first_token = static_cast<std::uint32_t>(random.below(40));
    append.sequence = sequence_;
    append.options = static_cast<std::uint32_t>(random.below(8));
    return append;
  }

  abi::AttnSubmit attention(Random& random) {
    abi::AttnSubmit submit{};
    submit.opcode = abi::kAttnSubmit;
    submit.nsid = abi::kCp;
    submit.session = 1;
    submit.heads = 1;
    submit.tokens = static_cast<std::uint32_t>(1 + random.below(40));
    submit.mode = random.pick<std::uint8_t>({abi::kExact, abi::kPartial, abi::kSparfAttend, abi::kGroups});
    submit.group = random.pick<std::uint8_t>({1, 2, 8});
    submit.has_valid = random.one_in(3);
    if (submit.mode == abi::kSparfAttend) {
      submit.r = static_cast<std::uint16_t>(1 + random.below(33));
      submit.k_top = static_cast<std::uint16_t>(1 + random.below(40));
      submit.local = static_cast<std::uint16_t>(random.below(8));
    }
    if (submit.mode == abi::kGroups) {
      submit.r = random.pick<std::uint16_t>({16, 32, 64, 128});
      submit.k_top = static_cast<std::uint16_t>(1 + random.below(4));
      submit.local = random.pick<std::uint16_t>({0, 1, 6554});
    }
    submit.inline_tokens = random.one_in(3) ? static_cast<std::uint16_t>(random.below(20)) : 0;
    submit.scale_log2e = 0x3e800000;
    return submit;
  }

  // Some queries as the rows of one command, at the front of its data; sometimes with changed bytes.
  nvme::AttnRows rows(Random& random) {
    nvme::AttnRows command{};
    command.opcode = abi::kAttnSubmitRows;
    command.nsid = abi::kCp;
    command.rows = static_cast<std::uint32_t>(1 + random.below(4));
    std::size_t at = 0;
    command.data_bytes = static_cast<std::uint32_t>(command.rows * sizeof(nvme::AttnRow));
    for (std::uint32_t i = 0; i < command.rows; ++i, at += sizeof(nvme::AttnRow)) {
      abi::AttnSubmit query = attention(random);
      const auto bytes = static_cast<std::uint32_t>(payload_bytes(query, 64));
      query.opcode = 0;
      query.nsid = 0;
      auto row = std::bit_cast<nvme::AttnRow>(query);
      row.data_bytes = random.one_in(16) ? static_cast<std::uint32_t>(random.bits()) : bytes;
      command.data_bytes += bytes;
      std::memcpy(payload_.data() + at, &row, sizeof row);
    }
    random.mutate(std::span(payload_).first(at), random.pick({0, 0, 1, 3}));
    return command;
  }

  Drive drive_;
  nvme::Subsystem subsystem_{drive_, {.serial = "FUZZ", .nqn = {}, .slm_bytes = 1 << 18}};
  nvme::Controller controller_{subsystem_, {.fabrics = true}, [](QueueId, nvme::Response) {}};
  std::vector<std::byte> payload_ = std::vector<std::byte>(1 << 20);
  std::uint32_t sequence_ = 0;
  std::uint64_t upload_ = 1;  // number of the latest upload
};

}  // namespace

std::unique_ptr<Surface> make_surface(const std::filesystem::path& folder) {
  return std::make_unique<Commands>(folder);
}

}  // namespace kvdrive::fuzz
