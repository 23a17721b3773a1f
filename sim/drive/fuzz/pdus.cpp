// SPDX-License-Identifier: Apache-2.0
// Fuzzes a TCP target with PDUs: whole sessions of several hosts with authentication, digests and data. Bytes are
// changed, split into pieces, or left out.
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>

#include "commands/subsystem.hpp"
#include "crc32c.hpp"
#include "engine/fast/fast_engine.hpp"
#include "fuzz/fuzz.hpp"
#include "tcp/connection.hpp"
#include "tcp/fabrics.hpp"

namespace kvdrive::fuzz {
namespace {

using tcp::Bytes;
using tcp::ByteView;

constexpr std::string_view kNqn = "nqn.2026-01.org.kvdrive:fuzz";
constexpr std::string_view kHost = "nqn.2026-01.org.kvdrive:host", kGuarded = "nqn.2026-01.org.kvdrive:guarded";
constexpr std::size_t kSlots = 6;

// One connection, and what its host knows of it.
struct Slot {
  std::unique_ptr<tcp::Connection> connection;
  bool initialized = false, connected = false;
  std::uint8_t digests = 0;
  std::uint16_t queue = 0;
  std::string_view host;
  std::uint16_t controller = 0;
  std::map<std::uint16_t, tcp::DataHeader> requests{};  // by TTAG; `offset` counts the bytes that were sent
};

class Pdus final : public Surface {
 public:
  explicit Pdus(const std::filesystem::path& folder) : drive_(folder / "drive.kv", make_fast_engine(), small_drive()) {}

  void one(Random& random) override {
    now_ += std::chrono::microseconds(random.one_in(2000) ? 200'000 : random.below(200));
    Slot& slot = slots_[random.below(kSlots)];
    if (!slot.connection) open(slot, random);
    Bytes pdu = next(slot, random);
    if (random.one_in(12)) random.mutate(pdu, 3);
    if (random.one_in(40)) pdu.resize(random.below(pdu.size() + 1));
    if (random.one_in(40)) random.mutate(pdu = next(slot, random), 1);
    ByteView left = pdu;
    while (!left.empty()) {
      const std::size_t piece = random.one_in(4) ? 1 + random.below(left.size()) : left.size();
      slot.connection->receive(left.first(piece), now_);
      left = left.subspan(piece);
      drain(slot, random);
    }
    target_.deliver_posted();
    if (random.one_in(50)) {
      target_.expire_keep_alives(now_);
      for (Slot& other : slots_) {
        if (other.connection) other.connection->check_time(now_);
      }
    }
    if (random.one_in(2000)) {
      target_.inject(static_cast<tcp::TransportFault>(random.below(tcp::kTransportFaults)), 1);
    }
    for (Slot& other : slots_) {
      if (!other.connection) continue;
      drain(other, random);
      if (other.connection->dropped() || other.connection->ending() || random.one_in(3000)) other = Slot();
    }
  }

 private:
  static tcp::TargetOptions target_options() {
    tcp::TargetOptions options;
    tcp::DhchapSecret secret{std::nullopt, Bytes(32)};
    options.hosts = {{std::string(kHost)}, {std::string(kGuarded), secret, secret}};
    options.max_transfer_bytes = 1 << 16;
    options.buffer_bytes = 1 << 16;
    options.connect_timeout = std::chrono::milliseconds(150);
    options.progress_timeout = std::chrono::milliseconds(300);
    return options;
  }

  void open(Slot& slot, Random& random) {
    slot = Slot();
    slot.connection = std::make_unique<tcp::Connection>(target_, tcp::Address{"127.0.0.1", 4420}, now_);
    slot.digests = static_cast<std::uint8_t>(random.below(4));
    slot.host = random.one_in(4) ? kGuarded : kHost;
    const Slot& other = slots_[random.below(kSlots)];
    if (other.connected && other.queue == 0 && &other != &slot) {
      slot.queue = static_cast<std::uint16_t>(1 + random.below(3));
      slot.controller = other.controller;
      slot.host = other.host;
    }
  }

  // The message that the host would send next, or another message of the protocol.
  Bytes next(Slot& slot, Random& random) {
    if (!slot.initialized) return initialize(slot);
    if (!slot.requests.empty() && !random.one_in(6)) return data(slot, random);
    if (!slot.connected && !random.one_in(10)) return connect(slot, random);
    return command(slot, random);
  }

  Bytes initialize(Slot& slot) {
    tcp::InitializeConnection request{};
    request.common = {tcp::kIcReq, 0, sizeof request, 0, sizeof request};
    request.digests = slot.digests;
    slot.initialized = true;
    return pack(slot, std::as_bytes(std::span(&request, 1)), {}, false);
  }

  Bytes connect(Slot& slot, Random& random) {
    tcp::ConnectData content{};
    content.controller_id = slot.queue == 0 ? tcp::kAnyController : slot.controller;
    const std::string_view subsystem = slot.queue == 0 && random.one_in(5) ? tcp::kDiscoveryNqn : kNqn;
    std::memcpy(content.subsystem_nqn, subsystem.data(), subsystem.size());
    std::memcpy(content.host_nqn, slot.host.data(), slot.host.size());
    abi::Sqe sqe = fabrics(tcp::kConnect, random);
    sqe.cdw10 = std::uint32_t{slot.queue} << 16;
    sqe.cdw11 = static_cast<std::uint32_t>(1 + random.below(31)) | (random.one_in(3) ? 4u << 16 : 0);
    sqe.cdw12 = random.one_in(2) ? 500 : 0;
    return capsule(slot, sqe, std::as_bytes(std::span(&content, 1)));
  }

  Bytes command(Slot& slot, Random& random) {
    Bytes content(4096);
    if (random.one_in(3)) return authentication(slot, random);
    abi::Sqe sqe{};
    sqe.flags = 0x40;
    sqe.cid = static_cast<std::uint16_t>(random.below(40));
    if (slot.queue == 0 && random.one_in(2)) {
      sqe = fabrics(random.pick<std::uint8_t>({tcp::kPropertyGet, tcp::kPropertySet, tcp::kDisconnect}), random);
      sqe.cdw11 = random.pick({nvme::kCap, nvme::kVs, nvme::kCc, nvme::kCc, nvme::kCc, nvme::kCsts});
      sqe.cdw10 = sqe.cdw11 == nvme::kCap;
      sqe.cdw12 = random.one_in(8) ? 0 : 0x00460061;
      return capsule(slot, sqe, {});
    }
    if (slot.queue == 0) {
      sqe.opcode = random.pick<std::uint8_t>({nvme::kIdentify, nvme::kGetLogPage, nvme::kKeepAlive, nvme::kSetFeatures,
                                              nvme::kAsyncEventRequest, nvme::kAbort});
      sqe.cdw10 = sqe.opcode == nvme::kIdentify ? 1 : random.pick({0x70u, 0x01u, 0x0fu, 0x1ff00c0u});
      sqe.cdw11 = static_cast<std::uint32_t>(random.below(1000));
      set_sgl(sqe, tcp::kSglTransport, 4096);
      return capsule(slot, sqe, {});
    }
    sqe.nsid = 1;
    sqe.opcode = random.pick<std::uint8_t>({nvme::kNvmFlush, nvme::kNvmRead, nvme::kNvmWrite, nvme::kNvmWrite});
    sqe.cdw10 = static_cast<std::uint32_t>(random.below(60));
    const auto blocks = static_cast<std::uint32_t>(1 + random.below(12));
    sqe.cdw12 = blocks - 1;
    const bool in_capsule = sqe.opcode == nvme::kNvmWrite && random.one_in(2);
    if (in_capsule) sqe.cdw12 = 0;
    set_sgl(sqe, in_capsule ? tcp::kSglInCapsule : tcp::kSglTransport, in_capsule ? 4096 : blocks * 4096);
    return capsule(slot, sqe, in_capsule ? ByteView(content) : ByteView());
  }

  Bytes authentication(Slot& slot, Random& random) {
    abi::Sqe sqe = fabrics(random.pick<std::uint8_t>({tcp::kAuthenticationSend, tcp::kAuthenticationReceive}), random);
    sqe.cdw10 = std::uint32_t{tcp::kDhchapProtocol} << 24 | 0x10100;
    Bytes message(random.pick<std::size_t>({16, 72, 80, 112, 144}));
    if (sqe.nsid == tcp::kAuthenticationReceive) {
      sqe.cdw11 = 1024;
      set_sgl(sqe, tcp::kSglTransport, 1024);
      return capsule(slot, sqe, {});
    }
    random.fill(message);
    message[0] = std::byte{message.size() != 72};
    message[1] = std::byte(random.pick({0, 2, 2, 4, 0xf0}));
    if (message.size() == 72) {  // a negotiation: SHA-256, mostly without DH, because DH is slow
      std::memset(message.data(), 0, message.size());
      message[7] = message[8] = message[10] = message[11] = message[12] = std::byte{1};
      message[42] = std::byte{random.one_in(50)};
    } else {
      message[6] = std::byte{32};
      message[8] = std::byte(random.below(2));
      message[4] = message[5] = message[10] = message[11] = std::byte{0};
    }
    if (random.one_in(10)) message.resize(random.below(16));
    sqe.cdw11 = static_cast<std::uint32_t>(message.size());
    set_sgl(sqe, tcp::kSglInCapsule, sqe.cdw11);
    return capsule(slot, sqe, message);
  }

  Bytes data(Slot& slot, Random& random) {
    const auto found = std::next(slot.requests.begin(), static_cast<long>(random.below(slot.requests.size())));
    tcp::DataHeader header = found->second;
    const std::uint32_t left = header.length - header.offset;
    const auto piece = random.one_in(2) ? left : static_cast<std::uint32_t>(1 + random.below(left));
    const std::uint8_t last = piece == left ? tcp::kLastPdu : 0;
    if (last) {
      slot.requests.erase(found);
    } else {
      found->second.offset += piece;
    }
    header.common = {tcp::kH2CData, last, sizeof header, 0, sizeof header};
    header.length = piece;
    return pack(slot, std::as_bytes(std::span(&header, 1)), Bytes(piece), true);
  }

  static abi::Sqe fabrics(std::uint8_t type, Random& random) {
    abi::Sqe sqe{};
    sqe.opcode = nvme::kFabrics;
    sqe.flags = 0x40;
    sqe.cid = static_cast<std::uint16_t>(random.below(40));
    sqe.nsid = type;
    set_sgl(sqe, tcp::kSglInCapsule, type == tcp::kConnect ? sizeof(tcp::ConnectData) : 0);
    return sqe;
  }

  static void set_sgl(abi::Sqe& sqe, std::uint8_t kind, std::uint32_t length) {
    const nvme::SglDescriptor sgl{.address = 0, .length = length, .reserved = {}, .kind = kind};
    std::memcpy(reinterpret_cast<std::byte*>(&sqe) + offsetof(abi::Sqe, prp1), &sgl, sizeof sgl);
  }

  Bytes capsule(const Slot& slot, const abi::Sqe& sqe, ByteView content) {
    const tcp::CapsuleCmd header{{tcp::kCapsuleCmd, 0, sizeof header, 0, sizeof header}, sqe};
    return pack(slot, std::as_bytes(std::span(&header, 1)), content, true);
  }

  static Bytes pack(const Slot& slot, ByteView header, ByteView content, bool digests) {
    const bool header_digest = digests && (slot.digests & 1), data_digest = digests && (slot.digests & 2);
    const std::size_t front = header.size() + (header_digest ? 4 : 0);
    Bytes pdu(front + content.size() + (data_digest && !content.empty() ? 4 : 0));
    std::memcpy(pdu.data(), header.data(), header.size());
    auto common = tcp::read_as<tcp::CommonHeader>(header);
    common.flags |= static_cast<std::uint8_t>((header_digest ? 1 : 0) | (data_digest && !content.empty() ? 2 : 0));
    common.data_offset = content.empty() ? 0 : static_cast<std::uint8_t>(front);
    common.bytes = static_cast<std::uint32_t>(pdu.size());
    std::memcpy(pdu.data(), &common, sizeof common);
    if (header_digest) store(pdu, header.size(), crc32c(ByteView(pdu).first(header.size())));
    if (!content.empty()) std::memcpy(pdu.data() + front, content.data(), content.size());
    if (data_digest && !content.empty()) store(pdu, front + content.size(), crc32c(content));
    return pdu;
  }

  static void store(Bytes& to, std::size_t offset, std::uint32_t value) {
    std::memcpy(to.data() + offset, &value, sizeof value);
  }

  // Takes what the target sends: whole PDUs, some of them together in one buffer.
  void drain(Slot& slot, Random& random) {
    tcp::Connection& connection = *slot.connection;
    while (!connection.output().empty()) {
      require(connection.output_begin() == 0, "a PDU was sent in part");
      const std::size_t size = connection.output().front().size();
      for (ByteView left = connection.output().front(); !left.empty();) left = left.subspan(take(slot, left));
      connection.sent(size, now_);
      if (!random.one_in(4)) connection.proceed(now_);
    }
    connection.proceed(now_);
  }

  // The first PDU of `bytes` is whole, of a kind that a controller sends, and answers something. Returns its length.
  static std::size_t take(Slot& slot, ByteView bytes) {
    require(bytes.size() >= sizeof(tcp::CommonHeader), "a PDU without header");
    const auto common = tcp::read_as<tcp::CommonHeader>(bytes);
    require(common.bytes <= bytes.size() && common.header_bytes <= common.bytes, "a PDU is shorter than it says");
    require(common.header_bytes >= sizeof(tcp::CommonHeader), "a PDU has no header");
    switch (common.type) {
      case tcp::kR2T: {
        const auto request = tcp::read_as<tcp::DataHeader>(bytes);
        require(request.offset == 0 && request.length > 0 && request.length <= 1 << 16, "an R2T that cannot be");
        require(slot.requests.emplace(request.tag, request).second, "an R2T with a tag in use");
        break;
      }
      case tcp::kCapsuleResp: {
        const auto completion = tcp::read_as<tcp::CapsuleResp>(bytes).completion;
        if (!slot.connected && completion.status == 0) {
          slot.connected = true;
          slot.controller = static_cast<std::uint16_t>(completion.result);
        }
        break;
      }
      default:
        require(common.type == tcp::kIcResp || common.type == tcp::kC2HTermReq || common.type == tcp::kC2HData,
                "a PDU that no controller sends");
    }
    return common.bytes;
  }

  Drive drive_;
  nvme::Subsystem subsystem_{drive_, {.serial = "FUZZ", .nqn = std::string(kNqn), .slm_bytes = 1 << 18}};
  tcp::Target target_{subsystem_, target_options(), [] {}};
  tcp::Clock::time_point now_ = tcp::Clock::now();
  std::array<Slot, kSlots> slots_{};
};

}  // namespace

std::unique_ptr<Surface> make_surface(const std::filesystem::path& folder) { return std::make_unique<Pdus>(folder); }

}  // namespace kvdrive::fuzz
